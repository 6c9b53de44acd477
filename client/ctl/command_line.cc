#include "client/ctl/command_line.h"

#include <iostream>
#include <map>
#include <utility>

#include <arraybridge/token.h>

#include "client/ctl/admin/cdi.h"
#include "client/ctl/admin/config.h"
#include "client/ctl/admin/token.h"

namespace arraybridge::ctl {
namespace {

constexpr int kExitUsage = 2;
constexpr uint64_t kBenchCountMax = 1'000'000;
constexpr uint64_t kTimeMax = 86'400'000;               // a day, in milliseconds
constexpr uint64_t kAgeMax = 365 * uint64_t{kTimeMax};  // older than that nothing gets

const std::map<std::string, Output> kOutputs = {{"table", Output::kTable},
                                                {"wide", Output::kWide},
                                                {"csv", Output::kCsv},
                                                {"json", Output::kJson},
                                                {"jsonl", Output::kJsonl}};
const std::map<std::string, Unit> kUnits = {
    {"B", Unit::kB}, {"KiB", Unit::kKiB}, {"MiB", Unit::kMiB}, {"GiB", Unit::kGiB}};

template <class Value>
std::vector<std::string> NamesOf(const std::map<std::string, Value>& named) {
  std::vector<std::string> names;
  names.reserve(named.size());
  for (const auto& [name, value] : named) names.push_back(name);
  return names;
}

// "500ms", "5s", "2min", "3h", "9d".
CLI::Option* TakeTime(CLI::Option* option, uint64_t least, uint64_t most) {
  const std::map<std::string, uint64_t> units = {
      {"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
  return option->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED))
      ->check(CLI::Range(least, most));
}

}  // namespace

CommandLine::CommandLine() {
  app_.require_subcommand(1);
  app_.fallthrough();  // options may follow the command
  DeclareOptions();
  DeclareLooking();
  DeclareLs();
  DeclareAdministration();
  DeclareConfig();
  DeclareTop();
  DeclareTokens();
  DeclareShares();
  DeclareFiles();
  DeclareWatch();
  DeclareShell();
}

const int* CommandLine::Parse(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_ = app_.exit(error) == 0 ? 0 : kExitUsage;
    return &exit_;
  }
  const Status finished = Finish();
  if (finished.ok()) return nullptr;
  std::cerr << "arraybridgectl: " << finished.message() << '\n';
  exit_ = kExitUsage;
  return &exit_;
}

Status CommandLine::Finish() {
  auto token = FindToken(token_file_);
  if (!token.ok()) return token.status();
  options_.token = *std::move(token);
  options_.header = !no_header_;
  options_.output = kOutputs.at(output_);
  if (!units_.empty()) options_.unit = kUnits.at(units_);
  options_.timeout = std::chrono::milliseconds{timeout_ms_};
  rounds_.interval = std::chrono::milliseconds{interval_ms_};
  rounds_.clear = !batch_;
  if (once_) rounds_.count = 1;
  put_.lifetime = std::chrono::milliseconds{lifetime_ms_};
  watching_.since = std::chrono::milliseconds{since_ms_};
  AB_RETURN_IF_ERROR(CheckSelection(listed_));
  if (all_) {
    asked_.listed = listed_;
    chosen_.admin = LsAll;
  }
  if (withdraw_->parsed() && (anybodys_ || withdraw_uid_->count() > 0)) {
    asked_.subject = share_.name;
    chosen_.admin = Withdraw;
  }
  return Ok();
}

CLI::App* CommandLine::Add(CLI::App& to, const char* name, const char* help, Chosen::Command command) {
  auto* const made = to.add_subcommand(name, help);
  made->callback([this, command = std::move(command)] { chosen_.command = command; });
  return made;
}

CLI::App* CommandLine::AddAdmin(CLI::App& to, const char* name, const char* help, AdminCommand command) {
  auto* const made = to.add_subcommand(name, help);
  made->callback([this, command] { chosen_.admin = command; });
  return made;
}

CLI::App* CommandLine::AddLocal(CLI::App& to, const char* name, const char* help, Chosen::Local local) {
  auto* const made = to.add_subcommand(name, help);
  made->callback([this, local = std::move(local)] { chosen_.local = local; });
  return made;
}

void CommandLine::DeclareOptions() {
  app_.add_option(
      "-H,--address", options_.address,
      "directory of the broker's sockets, unix:///path of its gRPC socket, or tcp://HOST:PORT of one on another host; "
      "default $ARRAYBRIDGE_ADDRESS, $XDG_RUNTIME_DIR/arraybridge, /run/arraybridge");
  app_.add_option("--tls-cert", options_.tls.cert,
                  "for tcp://: file of the certificate to show, PEM; default $ARRAYBRIDGE_TLS_CERT");
  app_.add_option("--tls-key", options_.tls.key, "file of its private key, PEM; default $ARRAYBRIDGE_TLS_KEY");
  app_.add_option("--tls-ca", options_.tls.ca,
                  "file of the authorities of the broker's certificate, PEM; default $ARRAYBRIDGE_TLS_CA");
  app_.add_option("--tls-name", options_.tls.name,
                  "name that the broker's certificate must have; default $ARRAYBRIDGE_TLS_NAME, the address' host");
  app_.add_option("-n,--namespace", options_.ns, "this namespace alone");
  app_.add_option("--token-file", token_file_,
                  "file of the token that opens namespaces; default $ARRAYBRIDGE_TOKEN, $ARRAYBRIDGE_TOKEN_FILE");
  app_.add_option(
          "-o,--output", output_,
          "table (default), wide (more columns), csv (all columns; bytes, milliseconds), json (one document) or "
          "jsonl (an object a line)")
      ->check(CLI::IsMember(NamesOf(kOutputs)));
  TakeTime(app_.add_option("--timeout", timeout_ms_, "how long the whole command may take: 500ms, 5s (default), 2min"),
           0, kTimeMax);
  app_.add_flag("--no-header", no_header_, "tables without their first line");
  app_.add_option("--units", units_, "of sizes in tables: B, KiB, MiB or GiB; default: whichever fits")
      ->check(CLI::IsMember(NamesOf(kUnits)));
}

void CommandLine::DeclareLooking() {
  Add(app_, "ping", "is it up? Prints ok", Ping);
  Add(app_, "info", "version, state, devices, limits", Info);
  Add(app_, "stats", "totals: sessions, shares, fences, bytes by device", ShowStats);
  auto* const doctor =
      AddLocal(app_, "doctor", "what this host and the broker can share, and why not the rest",
               [this](const Options& options, std::ostream& out) {
                 return conversions_ ? DoctorWithConversions(options) : Doctor(options, cuda_driver_, out);
               });
  auto* const conversions =
      doctor->add_flag("--conversions", conversions_, "also the frameworks of a Python: python3 -m arraybridge doctor");
  doctor
      ->add_option("--cuda-driver", cuda_driver_,
                   "whose GPUs are looked at: auto (default), the system's driver; none; or the path of a library")
      ->excludes(conversions);
}

void CommandLine::DeclareLs() {
  auto* const ls = Add(app_, "ls", "list what the broker holds",
                       [this](Connection& connection, const Options& options, std::ostream& out) {
                         return Ls(connection, options, listed_, out);
                       });
  ls->add_option("WHAT", listed_.what, "shares (default), sessions, leases, namespaces, devices or channels")
      ->check(CLI::IsMember(ListedKinds()));
  ls->add_flag("--all", all_, "of all users: through the administration's door");
  ls->add_option("--owner", listed_.owner, "what this user made or holds: a number or a name");
  ls->add_option("--pid", listed_.process_id, "what this process made or holds");
  ls->add_option("--device", listed_.device, "what lies there: cpu, cuda:0, cuda:GPU-..., GPU-...");
  TakeTime(ls->add_option("--older-than", listed_.older_than_ms, "what is older: 500ms, 30s, 5min, 2h, 1d"), 0,
           kAgeMax);
  ls->add_option("--sort", listed_.sort, "by this column: name, size, age, expires-in");
  ls->add_flag("--reverse", listed_.reverse, "the last first");
  ls->add_option("--group-by", listed_.group_by, "how many and how much: of each session, device or namespace")
      ->check(CLI::IsMember(Groupings()));
}

void CommandLine::DeclareAdministration() {
  const auto add_uid = [this](CLI::App* to) {
    to->add_option("--uid", asked_.uid, "whose namespace; not of one that users share");
  };
  auto* const quota = app_.add_subcommand("quota", "what a namespace may hold");
  quota->require_subcommand(1);
  auto* const get = AddAdmin(*quota, "get", "what it is", GetQuota);
  auto* const set = AddAdmin(*quota, "set", "changed until it is set again, or the broker ends", SetQuota);
  for (auto* const each : {get, set}) {
    each->add_option("NAMESPACE", asked_.subject, "its name")->required();
    add_uid(each);
  }
  set->add_option("--bytes", asked_.bytes, "4096, 64KiB, 2MiB, 8GiB, 1TiB; default: what is configured")->required();
  AddAdmin(app_, "end", "end a session", EndSession)
      ->add_option("SESSION", asked_.session, "its number, of ls sessions --all")
      ->required();
  AddAdmin(app_, "trim", "give cached memory back to the system", Trim)
      ->add_option("--device", asked_.device, "what is cached of this one alone: cpu, cuda:0, GPU-...");
  AddAdmin(app_, "reload", "read the configuration again", Reload);
  AddAdmin(app_, "drain", "take no more work, for good", Drain);
  AddAdmin(app_, "shutdown", "drain and end", Shutdown)
      ->add_flag("--now", asked_.now, "without waiting for calls that run");
}

void CommandLine::DeclareConfig() {
  auto* const config = app_.add_subcommand("config", "what is configured, and what may be");
  config->require_subcommand(1);
  AddAdmin(*config, "show", "what holds, and where it was said", ShowConfig);
  AddLocal(*config, "check", "is there anything wrong? Prints ok, or file, line and column",
           [this](const Options&, std::ostream& out) { return CheckConfig(config_file_, out); })
      ->add_option("FILE", config_file_, "default: what a broker would read here");
  AddLocal(*config, "default", "print a file of all defaults, with what each is for",
           [](const Options&, std::ostream& out) -> Status {
             out << DefaultConfig();
             return Ok();
           });
}

void CommandLine::DeclareTop() {
  auto* const top = AddLocal(app_, "top", "what the broker holds and does, again and again",
                             [this](const Options& options, std::ostream& out) { return Top(options, rounds_, out); });
  top->add_option("-n,--count", rounds_.count, "so many times; 0 (default): without end");
  TakeTime(top->add_option("-d,--delay", interval_ms_, "between two of them: 500ms, 2s (default), 1min"), 1, kTimeMax);
  top->add_flag("--once", once_, "the same as --count 1");
  top->add_flag("--batch", batch_, "one below the other, also on a terminal");
}

void CommandLine::DeclareTokens() {
  auto* const token = app_.add_subcommand("token", "what opens a namespace");
  token->require_subcommand(1);
  AddLocal(*token, "create", "make one: print it, or make a file with it", [this](const Options&, std::ostream& out) {
    return CreateToken(asked_.subject, out);
  })->add_option("FILE", asked_.subject, "must not be there yet");
  AddAdmin(*token, "revoke", "put another one, which nobody knows, into a file, and reload", RevokeToken)
      ->add_option("FILE", asked_.subject, "that an access list names")
      ->required();
  AddAdmin(*token, "ls", "which files open which namespaces", LsTokens);
}

void CommandLine::DeclareShares() {
  using ShareCommand = Status (*)(Connection&, const Options&, const ShareArgument&, std::ostream&);
  const auto add = [this](const char* name, const char* help, ShareCommand asks) {
    auto* const one =
        Add(app_, name, help, [this, asks](Connection& connection, const Options& options, std::ostream& out) {
          return asks(connection, options, share_, out);
        });
    one->add_option("SHARE", share_.name, "its name, in the namespace of -n or in 'default'")->required();
    one->add_option("--generation", share_.generation, "this generation of it; 0 (default): the newest");
    return one;
  };
  add("show", "what a share is, who made it, how many read it", Show);
  add("trace", "who made a share and who read it, by which route, what was copied and why", Trace);
  add("explain", "by which handle each session gets a share, and why not", Explain);
  withdraw_ = add("withdraw", "take a share off its name", Withdraw);
  withdraw_->add_flag("--admin", anybodys_, "through the administration's door: anybody's");
  withdraw_uid_ = withdraw_->add_option("--uid", asked_.uid, "of this user; implies --admin");
}

void CommandLine::DeclareFiles() {
  auto* const put = AddLocal(app_, "put", "make a share of the array in a .npy file",
                             [this](const Options& options, std::ostream& out) { return Put(options, put_, out); });
  put->add_option("FILE", put_.file, "of one array: C-contiguous, little-endian")->required();
  put->add_option("NAME", put_.name, "of the share; default: the file's without its ending");
  put->add_flag("--replace", put_.replace, "a share that has the name loses it");
  TakeTime(put->add_option("--lifetime", lifetime_ms_, "withdrawn after so long: 500ms, 30s, 5min, 2h, 1d"), 1,
           kAgeMax);
  put->add_flag("--hold", put_.hold, "run until interrupted, then withdraw it");
  auto* const dump = AddLocal(app_, "dump", "write an array of a share to a .npy file",
                              [this](const Options& options, std::ostream& out) { return Dump(options, dump_, out); });
  dump->add_option("SHARE", dump_.share, "its name, in the namespace of -n or in 'default'")->required();
  dump->add_option("--generation", dump_.generation, "this generation of it; 0 (default): the newest");
  dump->add_option("-f,--file", dump_.file, "to be made")->required();
  dump->add_flag("--force", dump_.force, "replace the file if there is one");
  dump->add_option("--array", dump_.array, "which, of a share of several: 0 is the first");
}

void CommandLine::DeclareWatch() {
  auto* const watch = Add(app_, "watch", "what happens at the broker, as it happens, a line each",
                          [this](Connection& connection, const Options& options, std::ostream& out) {
                            return Watch(connection, options, watching_, out);
                          });
  watch->add_option("--kind", watching_.kinds, "only events of this kind; may be said again")
      ->check(CLI::IsMember(EventKinds()));
  watch->add_option("--prefix", watching_.name_prefix, "only events of shares whose names start so");
  watch->add_option("--count", watching_.count, "end after so many; 0 (default): never");
  TakeTime(watch->add_option("--since", since_ms_, "first what began so long ago or later and is still there"), 1,
           kAgeMax);
}

void CommandLine::DeclareShell() {
  auto* const bench =
      AddLocal(app_, "bench", "how long verbs take here, and how fast bytes go in",
               [this](const Options& options, std::ostream& out) { return Bench(options, bench_, out); });
  bench->add_option("WHAT", bench_.what, "allocate, acquire or copy; default: all")->check(CLI::IsMember(BenchKinds()));
  bench->add_option("--count", bench_.count, "of each: 200 (default)")->check(CLI::Range(uint64_t{1}, kBenchCountMax));
  auto* const cdi = app_.add_subcommand("cdi", "how containers get the broker's sockets");
  cdi->require_subcommand(1);
  AddLocal(*cdi, "generate", "print a CDI file for the broker of this host: to /etc/cdi", PrintCdi);
  AddLocal(app_, "completion", "print what a shell needs to complete this command",
           [this](const Options&, std::ostream& out) -> Status {
             const auto script = Completion(app_, AllChoices(), shell_);
             if (script.ok()) out << *script;
             return script.status();
           })
      ->add_option("SHELL", shell_, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  AddLocal(app_, "version", "of this program and of the broker, and the protocols they speak", Version);
}

std::vector<Choices> CommandLine::AllChoices() const {
  const auto outputs = NamesOf(kOutputs);
  return {{"--output", outputs},
          {"-o", outputs},
          {"--units", NamesOf(kUnits)},
          {"ls", ListedKinds()},
          {"--sort", SortColumns()},
          {"--group-by", Groupings()},
          {"quota", {"get", "set"}},
          {"config", {"show", "check", "default"}},
          {"token", {"create", "revoke", "ls"}},
          {"--kind", EventKinds()},
          {"bench", BenchKinds()},
          {"cdi", {"generate"}},
          {"completion", {"bash", "zsh", "fish"}}};
}

}  // namespace arraybridge::ctl

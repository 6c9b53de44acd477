// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>

#include <arraybridge/token.h>

#include "client/ctl/admin/cdi.h"
#include "client/ctl/admin/config.h"
#include "client/ctl/admin/token.h"
#include "proto/boundary/nearest.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

constexpr int kExitUsage = 2;
constexpr uint64_t kTimeMax = 86'400'000;               // a day, in milliseconds
constexpr uint64_t kAgeMax = 365 * uint64_t{kTimeMax};  // the longest age

const std::map<std::string, Output> kOutputs = {{"table", Output::kTable},
                                                {"wide", Output::kWide},
                                                {"csv", Output::kCsv},
                                                {"json", Output::kJson},
                                                {"jsonl", Output::kJsonl}};
const std::map<std::string, Unit> kUnits = {
    {"B", Unit::kB}, {"KiB", Unit::kKiB}, {"MiB", Unit::kMiB}, {"GiB", Unit::kGiB}};

template <class Value>
std::vector<std::string> NamesOf(const std::map<std::string, Value>& named) {
  std::vector<std::string> names(named.size());
  std::ranges::transform(named, names.begin(), &std::pair<const std::string, Value>::first);
  return names;
}

// "500ms", "5s", "2min", "3h", "9d".
CLI::Option* TakeTime(CLI::Option* option, uint64_t least, uint64_t most) {
  const std::map<std::string, uint64_t> units = {
      {"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
  return option->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED))
      ->check(CLI::Range(least, most));
}

// The word that is no command, and the nearest command. Empty if the arguments have another error.
std::string UnknownCommand(const CLI::App& app, std::span<const char* const> arguments) {
  const auto words = app.remaining(true);
  if (words.empty() || words.front().starts_with("-")) return {};
  const std::string& word = words.front();
  const auto place = [&](std::string_view of) { return std::ranges::find(arguments, of); };
  // In "chanel ls" the unknown word stands before a known command.
  const CLI::App* within = &app;
  while (!within->get_subcommands().empty()) {
    const CLI::App* const next = within->get_subcommands().front();
    if (place(word) < place(next->get_name())) break;
    within = next;
  }
  const auto known = within->get_subcommands({});
  if (known.empty()) return {};
  std::vector<std::string> names;
  names.reserve(known.size());
  for (const CLI::App* command : known) names.push_back(command->get_name());
  const std::string path = within == &app ? app.get_name() : app.get_name() + " " + within->get_name();
  // Half of a word's letters may differ: "lst" is near to "ls".
  const std::string guess = DidYouMean(word, names, std::max<size_t>(2, word.size()) / 2);
  return Concat("'", word.substr(0, 40), "' is not a command of ", path, ": ", guess, "'", path,
                " --help' lists its commands");
}

// The command that lists what this one may name; empty: it names nothing.
std::string ListerFor(std::string_view command) {
  constexpr std::array<std::string_view, 5> kOfShares = {"show", "trace", "explain", "withdraw", "get"};
  if (std::ranges::find(kOfShares, command) != kOfShares.end()) return "ls";
  if (command == "channel" || command == "service") return std::string(command) + " ls";
  return command == "end" ? "ls sessions --all" : "";
}

}  // namespace

CommandLine::~CommandLine() = default;

CommandLine::CommandLine()
    : owned_app_(std::make_unique<CLI::App>("Inspects and administers a running arraybridged.", "arraybridgectl")),
      app_(*owned_app_) {
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
  DeclareChannels();
  DeclareTiers();
  DeclareFiles();
  DeclareServices();
  DeclareRecording();
  DeclareWatch();
  DeclareShell();
}

const int* CommandLine::Parse(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = UnknownCommand(app_, {argv, static_cast<size_t>(argc)});
    if (!unknown.empty()) {
      std::cerr << "arraybridgectl: " << Printable(unknown) << '\n';
      return &(exit_ = kExitUsage);
    }
    exit_ = app_.exit(error) == 0 ? 0 : kExitUsage;
    return &exit_;
  }
  const Status finished = Finish();
  const std::string command = app_.get_subcommands().front()->get_name();
  chosen_.lister = ListerFor(command);
  chosen_.named = command == "channel" ? channel_.name : command == "get" ? dump_.share : share_.name;
  if (finished.ok()) return nullptr;
  std::cerr << "arraybridgectl: " << finished.message() << '\n';
  exit_ = kExitUsage;
  return &exit_;
}

Status CommandLine::Finish() {
  AB_ASSIGN_OR_RETURN(auto token, FindToken(token_file_));
  options_.token = std::move(token);
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
    admin_.listed = listed_;
    chosen_.admin = LsAll;
  }
  if (info_->parsed() && lost_) chosen_.admin = LsLost;
  if (withdraw_->parsed() && (anybodys_ || withdraw_uid_->count() > 0)) {
    admin_.subject = share_.name;
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
  app_.add_option("-H,--address", options_.address,
                  "directory of the broker's sockets, or unix:///path of its gRPC socket; "
                  "default $ARRAYBRIDGE_ADDRESS, the user's own daemon, /run/arraybridge");
  app_.add_option("-n,--namespace", options_.ns, "only this namespace");
  app_.add_option("--token-file", token_file_,
                  "file of the token that opens namespaces; default $ARRAYBRIDGE_TOKEN, $ARRAYBRIDGE_TOKEN_FILE");
  app_.add_option(
          "-o,--output", output_,
          "table (default), wide (more columns), csv (all columns; bytes, milliseconds), json (one document) or "
          "jsonl (one object per line)")
      ->check(CLI::IsMember(NamesOf(kOutputs)));
  TakeTime(app_.add_option("--timeout", timeout_ms_, "time limit of the whole command: 500ms, 5s (default), 2min"), 0,
           kTimeMax);
  app_.add_flag("--no-header", no_header_, "print tables without a header");
  app_.add_option("--units", units_, "unit of sizes in tables: B, KiB, MiB or GiB; default: the one that fits")
      ->check(CLI::IsMember(NamesOf(kUnits)));
}

void CommandLine::DeclareLooking() {
  Add(app_, "ping", "check that the broker serves; prints ok", Ping);
  info_ = Add(app_, "info", "print version, state, lives, devices and limits", Info);
  info_->add_flag("--lost", lost_, "list the shares that were lost with the last daemon; for administrators");
  Add(app_, "stats", "print totals: sessions, shares, fences, bytes by device", ShowStats);
  auto* const doctor =
      AddLocal(app_, "doctor", "examine what this host, the broker and Python can share",
               [this](const Options& options, std::ostream& out) { return Doctor(options, doctor_, out); });
  doctor->add_option("FRAMEWORK", doctor_.frameworks,
                     "a framework of Python to examine; default: all, if Python started this program");
  doctor->add_option("--cuda-driver", doctor_.cuda_driver,
                     "CUDA driver to use: auto (default; the system's driver), none, or the path of a library");
}

void CommandLine::DeclareLs() {
  auto* const ls = Add(app_, "ls", "list what the broker holds",
                       [this](Connection& connection, const Options& options, std::ostream& out) {
                         return Ls(connection, options, listed_, out);
                       });
  ls->add_option("WHAT", listed_.what, "shares (default), sessions, leases, namespaces, devices or channels")
      ->check(CLI::IsMember(ListedKinds()));
  ls->add_flag("--all", all_, "of all users, through the administration socket");
  ls->add_option("--owner", listed_.owner, "only what this user made or holds: user ID or name");
  ls->add_option("--pid", listed_.process_id, "only what this process made or holds");
  ls->add_option("--device", listed_.device, "only on this device: cpu, cuda:0, cuda:GPU-..., GPU-...");
  TakeTime(ls->add_option("--older-than", listed_.older_than_ms, "only what is older: 500ms, 30s, 5min, 2h, 1d"), 0,
           kAgeMax);
  ls->add_option("--sort", listed_.sort, "sort by this column: name, size, age, expires-in");
  ls->add_flag("--reverse", listed_.reverse, "reverse the order");
  ls->add_option("--group-by", listed_.group_by, "print counts and bytes by session, device or namespace")
      ->check(CLI::IsMember(Groupings()));
}

void CommandLine::DeclareAdministration() {
  const auto add_uid = [this](CLI::App* to) {
    to->add_option("--uid", admin_.uid, "owner of the namespace; not for shared namespaces");
  };
  auto* const quota = app_.add_subcommand("quota", "print or change the quota of a namespace");
  quota->require_subcommand(1);
  auto* const get = AddAdmin(*quota, "get", "print the quota", GetQuota);
  auto* const set = AddAdmin(*quota, "set", "change the quota until the broker restarts", SetQuota);
  for (auto* const each : {get, set}) {
    each->add_option("NAMESPACE", admin_.subject, "name of the namespace")->required();
    add_uid(each);
  }
  set->add_option("--bytes", admin_.bytes, "4096, 64KiB, 2MiB, 8GiB, 1TiB; default: the configured quota")->required();
  AddAdmin(app_, "end", "end a session", EndSession)
      ->add_option("SESSION", admin_.session, "its number, from ls sessions --all")
      ->required();
  AddAdmin(app_, "trim", "give cached memory back to the system", Trim)
      ->add_option("--device", admin_.device, "only the memory of this device: cpu, cuda:0, GPU-...");
  AddAdmin(app_, "reload", "read the configuration again", Reload);
  AddAdmin(app_, "drain", "refuse new work until the broker restarts", Drain);
  AddAdmin(app_, "shutdown", "drain, then end the broker", Shutdown)
      ->add_flag("--now", admin_.now, "do not wait for running calls");
  AddAdmin(app_, "upgrade", "start the program that is on the disk now; clients keep their sessions", Upgrade);
}

void CommandLine::DeclareConfig() {
  auto* const config = app_.add_subcommand("config", "show, check and document the configuration");
  config->require_subcommand(1);
  AddAdmin(*config, "show", "print the values in effect and their origin", ShowConfig);
  AddLocal(*config, "check", "check a file; prints ok, or file, line and column of the error",
           [this](const Options&, std::ostream&) { return CheckConfig(config_file_); })
      ->add_option("FILE", config_file_, "default: the files that a broker would read here");
  AddLocal(*config, "default", "print a file of all defaults with their descriptions",
           [](const Options&, std::ostream& out) -> Status {
             out << DefaultConfig();
             return Ok();
           });
}

void CommandLine::DeclareTop() {
  auto* const top = AddLocal(app_, "top", "print what the broker holds and does, repeatedly",
                             [this](const Options& options, std::ostream& out) { return Top(options, rounds_, out); });
  top->add_option("-c,--count", rounds_.count, "number of rounds; 0 (default): without end");
  TakeTime(top->add_option("-d,--delay", interval_ms_, "time between rounds: 500ms, 2s (default), 1min"), 1, kTimeMax);
  top->add_flag("--once", once_, "the same as --count 1");
  top->add_flag("--batch", batch_, "do not clear the screen of a terminal");
}

void CommandLine::DeclareTokens() {
  auto* const token = app_.add_subcommand("token", "create, revoke and list tokens, which open namespaces");
  token->require_subcommand(1);
  AddLocal(*token, "create", "create a token: print it, or write it into a new file",
           [this](const Options&, std::ostream& out) { return CreateToken(admin_.subject, out); })
      ->add_option("FILE", admin_.subject, "file to create; must not exist");
  AddAdmin(*token, "revoke", "replace the token in a file by a new, secret one, and reload", RevokeToken)
      ->add_option("FILE", admin_.subject, "a file that an access list names")
      ->required();
  AddAdmin(*token, "ls", "list the files and the namespaces that they open", LsTokens);
}

void CommandLine::DeclareShares() {
  using ShareCommand = Status (*)(Connection&, const Options&, const ShareArgument&, std::ostream&);
  const auto add = [this](const char* name, const char* help, ShareCommand asks) {
    auto* const one =
        Add(app_, name, help, [this, asks](Connection& connection, const Options& options, std::ostream& out) {
          return asks(connection, options, share_, out);
        });
    one->add_option("SHARE", share_.name, "its name, in the namespace of -n or in 'default'")->required();
    one->add_option("--generation", share_.generation, "generation of the share; 0 (default): the newest");
    return one;
  };
  add("show", "print a share, its maker and its readers", Show);
  add("trace", "print the maker and the readers of a share, their routes, copies and the reasons", Trace);
  add("explain", "print by which handle each session gets a share, or why not", Explain);
  withdraw_ = add("withdraw", "withdraw a share from its name", Withdraw);
  withdraw_->add_flag("--admin", anybodys_, "any user's share, through the administration socket");
  withdraw_uid_ = withdraw_->add_option("--uid", admin_.uid, "of this user; implies --admin");
}

void CommandLine::DeclareChannels() {
  auto* const channel = app_.add_subcommand("channel", "list, show, drain and remove channels");
  channel->require_subcommand(1);
  Add(*channel, "ls", "list channels, as ls channels does",
      [this](Connection& connection, const Options& options, std::ostream& out) {
        listed_.what = "channels";
        return Ls(connection, options, listed_, out);
      });
  using ChannelCommand = Status (*)(Connection&, const Options&, const ChannelArgument&, std::ostream&);
  const auto add = [&](const char* name, const char* help, ChannelCommand asks) {
    auto* const one =
        Add(*channel, name, help, [this, asks](Connection& connection, const Options& options, std::ostream& out) {
          return asks(connection, options, channel_, out);
        });
    one->add_option("CHANNEL", channel_.name, "its name, in the namespace of -n or in 'default'")->required();
  };
  add("show", "print a channel, its ends and its rate", ShowChannel);
  add("drain", "drop what is queued; a channel without an open end goes", DrainChannel);
  add("rm", "remove a channel without an open end, and what is queued in it", RemoveChannel);
}

void CommandLine::DeclareFiles() {
  auto* const put = AddLocal(app_, "put", "publish the array in a .npy file",
                             [this](const Options& options, std::ostream& out) { return Put(options, put_, out); });
  put->add_option("FILE", put_.file, ".npy file of one array: C-contiguous, little-endian")->required();
  put->add_option("NAME", put_.name, "name of the share; default: the file's name without its ending");
  put->add_flag("--replace", put_.replace, "replace a share of this name");
  TakeTime(put->add_option("--lifetime", lifetime_ms_, "time until it is withdrawn: 500ms, 30s, 5min, 2h, 1d"), 1,
           kAgeMax);
  put->add_flag("--hold", put_.hold, "run until interrupted, then withdraw it");
  auto* const load = AddLocal(app_, "load", "read files of a model into one share that all processes use",
                              [this](const Options& options, std::ostream&) { return Load(options, load_); });
  load->add_option("FILE", load_.files,
                   "safetensors (also an index of shards, or a folder), .npz, or a checkpoint of torch; needs Python")
      ->required();
  load->add_option("--name", load_.name, "name of the share; default: the first file's name without its ending");
  load->add_flag("--sha256", load_.sha256, "compare every byte, not size, time and header, with what is loaded");
  load->add_flag("--replace", load_.replace, "also if the share is newer than these files");
  load->add_option("--device", load_.device, "where it is to lie: cpu (default), cuda, cuda:1, or the UUID of a GPU");
  auto* const dump = AddLocal(app_, "get", "write an array of a share to a .npy file",
                              [this](const Options& options, std::ostream& out) { return Dump(options, dump_, out); });
  dump->alias("dump");  // its name before
  dump->add_option("SHARE", dump_.share, "its name, in the namespace of -n or in 'default'")->required();
  dump->add_option("--generation", dump_.generation, "generation of the share; 0 (default): the newest");
  dump->add_option("-f,--file,FILE", dump_.file, "file to create")->required();
  dump->add_flag("--force", dump_.force, "replace the file if it exists");
  dump->add_option("--array", dump_.array, "index of the array in a share of several: 0 is the first");
}

void CommandLine::DeclareWatch() {
  auto* const watch = Add(app_, "watch", "print events of the broker as they occur, one per line",
                          [this](Connection& connection, const Options& options, std::ostream& out) {
                            return Watch(connection, options, watching_, out);
                          });
  watch->add_option("--kind", watching_.kinds, "only events of this kind; can be repeated")
      ->check(CLI::IsMember(EventKinds()));
  watch->add_option("--prefix", watching_.name_prefix, "only events of shares whose names begin with this prefix");
  watch->add_option("--count", watching_.count, "end after this number of events; 0 (default): never");
  TakeTime(watch->add_option("--since", since_ms_, "first print what began in this time and still exists"), 1, kAgeMax);
}

void CommandLine::DeclareShell() {
  auto* const cdi = app_.add_subcommand("cdi", "Container Device Interface: the broker's sockets in containers");
  cdi->require_subcommand(1);
  AddLocal(*cdi, "generate", "print a CDI file for the broker of this host, to be saved in /etc/cdi", PrintCdi);
  AddLocal(app_, "completion", "print a completion script for a shell",
           [this](const Options&, std::ostream& out) -> Status {
             const auto script = Completion(app_, AllChoices(), shell_);
             if (script.ok()) out << *script;
             return script.status();
           })
      ->add_option("SHELL", shell_, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  AddLocal(app_, "version", "print the versions and protocols of this program and of the broker", Version);
}

std::vector<Choices> CommandLine::AllChoices() const {
  const auto outputs = NamesOf(kOutputs);
  return {{"--output", outputs},        {"-o", outputs},
          {"--units", NamesOf(kUnits)}, {"ls", ListedKinds()},
          {"--sort", SortColumns()},    {"--group-by", Groupings()},
          {"--kind", EventKinds()},     {"completion", {"bash", "zsh", "fish"}}};
}

}  // namespace arraybridge::ctl

// arraybridgectl asks a running broker through its public door, or its administration's. It never starts one.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/ctl/admin.h"
#include "client/ctl/commands.h"
#include "client/ctl/completion.h"
#include "client/ctl/connection.h"
#include "client/ctl/token.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {
namespace {

// What scripts branch on.
enum ExitCode : int {
  kDone = 0,
  kError = 1,
  kUsage = 2,
  kCannotConnect = 3,
  kPermission = 4,
  kNotFound = 5,
  kResourceExhausted = 6,
  kTimeout = 7,
};

constexpr uint64_t kTimeoutMax = 86'400'000;  // a day, in milliseconds

ExitCode ExitCodeOf(Code code) {
  switch (code) {
    case Code::kOk:
      return kDone;
    case Code::kUnavailable:
      return kCannotConnect;
    case Code::kPermissionDenied:
    case Code::kUnauthenticated:
      return kPermission;
    case Code::kNotFound:
      return kNotFound;
    case Code::kResourceExhausted:
      return kResourceExhausted;
    case Code::kDeadlineExceeded:
      return kTimeout;
    default:
      return kError;
  }
}

int Fail(const Status& status) {
  std::cerr << "arraybridgectl: " << status.message() << '\n';
  return ExitCodeOf(status.code());
}

using Command = std::function<Status(Connection&, const Options&, std::ostream&)>;

// Of an address on this host: nothing.
Result<TlsIdentity> IdentityFor(const std::string& address, const Options& options) {
  return IsRemote(address) ? ReadTlsIdentity(WithEnvironment(options.tls)) : TlsIdentity{};
}

int Run(const Command& command, const Options& options) {
  const auto path = FindBroker(options.address);
  const auto identity = path.ok() ? IdentityFor(*path, options) : path.status();
  if (!identity.ok()) {
    Fail(identity.status());
    return kUsage;
  }
  auto connection = Connection::To(*path, *identity, options.timeout, options.token);
  if (!connection.ok()) return Fail(connection.status());
  const auto status = command(**connection, options, std::cout);
  if (!status.ok()) return Fail(status);
  std::cout.flush();
  if (!std::cout) return Fail(Internal("the output could not be written"));
  return kDone;
}

int RunAdmin(AdminCommand command, const Options& options, const AdminOptions& asked) {
  const auto path = FindBroker(options.address, "admin.sock");
  if (!path.ok()) {
    Fail(path.status());
    return kUsage;
  }
  if (IsRemote(*path)) {
    Fail(
        InvalidArgument("address '", *path, "': the administration has no door over TCP, only admin.sock on its host"));
    return kUsage;
  }
  auto connection = AdminConnection::To(*path, options.timeout);
  if (!connection.ok()) return Fail(connection.status());
  const Status status = command(**connection, options, asked, std::cout);
  if (!status.ok()) return Fail(status);
  std::cout.flush();
  return std::cout ? kDone : Fail(Internal("the output could not be written"));
}

// Declares what goes through the administration's door; `chosen` is the one that was said.
void DeclareAdmin(CLI::App& app, AdminOptions& asked, AdminCommand& chosen) {
  const auto add = [&chosen](CLI::App& to, const char* name, const char* help, AdminCommand command) {
    auto* const made = to.add_subcommand(name, help);
    made->callback([&chosen, command] { chosen = command; });
    return made;
  };
  const auto add_uid = [&asked](CLI::App* to) {
    to->add_option("--uid", asked.uid, "whose namespace; not of one that users share");
  };
  auto* const quota = app.add_subcommand("quota", "what a namespace may hold");
  quota->require_subcommand(1);
  auto* const get = add(*quota, "get", "what it is", GetQuota);
  auto* const set = add(*quota, "set", "changed until it is set again, or the broker ends", SetQuota);
  for (auto* const each : {get, set}) {
    each->add_option("NAMESPACE", asked.subject, "its name")->required();
    add_uid(each);
  }
  set->add_option("--bytes", asked.bytes, "4096, 64KiB, 2MiB, 8GiB, 1TiB; default: what is configured")->required();
  add(app, "end", "end a session", EndSession)
      ->add_option("SESSION", asked.session, "its number, of ls sessions --all")
      ->required();
  add(app, "trim", "give cached memory back to the system", Trim);
  add(app, "reload", "read the configuration again", Reload);
  add(app, "drain", "take no more work, for good", Drain);
  add(app, "shutdown", "drain and end", Shutdown)->add_flag("--now", asked.now, "without waiting for calls that run");
  auto* const config = app.add_subcommand("config", "what is configured");
  config->require_subcommand(1);
  add(*config, "show", "what holds, and where it was said", ShowConfig);
}

// Rounds of a live view: each asks on a connection of its own, so that a broker that restarts is found again.
struct Rounds {
  uint64_t count = 0;  // 0: without end
  std::chrono::milliseconds interval{2000};
};

int RunTop(const Options& options, const Rounds& rounds) {
  constexpr char kClear[] = "\x1b[H\x1b[2J";
  const bool live = options.output == Output::kTable && ::isatty(STDOUT_FILENO) != 0 && rounds.count != 1;
  v1::GetStatsResponse before;
  auto asked = std::chrono::steady_clock::now();
  for (uint64_t round = 0; rounds.count == 0 || round < rounds.count; ++round) {
    if (round > 0) std::this_thread::sleep_for(rounds.interval);
    const auto now = std::chrono::steady_clock::now();
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - std::exchange(asked, now));
    if (live) std::cout << kClear;
    const int code = Run([&](Connection& connection, const Options& given,
                             std::ostream& out) { return Top(connection, given, since, &before, out); },
                         options);
    if (code != kDone) return code;
  }
  return kDone;
}

// A host without a broker has something to tell, too.
int RunDoctor(const Options& options) {
  std::unique_ptr<Connection> connection;
  Status why;
  const auto path = FindBroker(options.address);
  const auto identity = path.ok() ? IdentityFor(*path, options) : path.status();
  if (identity.ok()) {
    auto made = Connection::To(*path, *identity, options.timeout, options.token);
    why = made.status();
    if (why.ok()) connection = *std::move(made);
  } else {
    why = identity.status();
  }
  const bool is_here = path.ok() && !IsRemote(*path);
  const Status found = Doctor(connection.get(), why, is_here ? *path : "", options, std::cout);
  std::cout.flush();
  return found.ok() ? kDone : Fail(found);
}

int Main(int argc, char** argv) {
  Options options;
  std::string what = "shares";
  std::string shell;
  std::string output = "table";
  std::string token_file;
  const std::vector<std::string> kinds = {"shares", "sessions", "leases", "namespaces", "devices"};
  const std::map<std::string, Output> outputs = {
      {"table", Output::kTable}, {"csv", Output::kCsv}, {"json", Output::kJson}, {"jsonl", Output::kJsonl}};
  AdminOptions asked;
  AdminCommand admin = nullptr;
  bool all = false;
  Rounds rounds;
  uint64_t interval_ms = 2000;
  bool once = false;
  bool no_header = false;
  uint64_t timeout_ms = 5000;
  Command command;

  CLI::App app{"Asks a running arraybridged.", "arraybridgectl"};
  app.require_subcommand(1);
  app.fallthrough();  // options may follow the command
  app.add_option("-H,--address", options.address,
                 "directory of the broker's sockets, unix:///path of its gRPC socket, or tcp://HOST:PORT of one on "
                 "another host; default $ARRAYBRIDGE_ADDRESS, $XDG_RUNTIME_DIR/arraybridge, /run/arraybridge");
  app.add_option("--tls-cert", options.tls.cert,
                 "for tcp://: file of the certificate to show, PEM; default $ARRAYBRIDGE_TLS_CERT");
  app.add_option("--tls-key", options.tls.key, "file of its private key, PEM; default $ARRAYBRIDGE_TLS_KEY");
  app.add_option("--tls-ca", options.tls.ca,
                 "file of the authorities of the broker's certificate, PEM; default $ARRAYBRIDGE_TLS_CA");
  app.add_option("--tls-name", options.tls.name,
                 "name that the broker's certificate must have; default $ARRAYBRIDGE_TLS_NAME, the address' host");
  app.add_option("-n,--namespace", options.ns, "this namespace alone");
  app.add_option("--token-file", token_file,
                 "file of the token that opens namespaces; default $ARRAYBRIDGE_TOKEN, $ARRAYBRIDGE_TOKEN_FILE");
  app.add_option("-o,--output", output,
                 "table (default), csv (bytes, milliseconds), json (one document) or jsonl (an object a line)")
      ->check(CLI::IsMember(outputs));
  app.add_option("--timeout", timeout_ms, "how long the whole command may take: 500ms, 5s (default), 2min")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, uint64_t>{{"ms", 1}, {"s", 1000}, {"min", 60'000}},
                                        CLI::AsNumberWithUnit::UNIT_REQUIRED))
      ->check(CLI::Range(uint64_t{0}, kTimeoutMax));
  app.add_flag("--no-header", no_header, "tables without their first line");
  app.add_subcommand("ping", "is it up? Prints ok")->callback([&] { command = Ping; });
  app.add_subcommand("info", "version, state, devices, limits")->callback([&] { command = Info; });
  app.add_subcommand("stats", "totals: sessions, shares, fences, bytes by device")->callback([&] {
    command = ShowStats;
  });
  const auto* doctor = app.add_subcommand("doctor", "what this host and the broker can share, and why not the rest");
  auto* ls = app.add_subcommand("ls", "list what the broker holds");
  ls->add_option("WHAT", what, "shares (default), sessions, leases, namespaces or devices")
      ->check(CLI::IsMember(kinds));
  ls->callback([&] {
    command = [&what](Connection& connection, const Options& given, std::ostream& out) {
      return Ls(connection, given, what, out);
    };
  });
  ls->add_flag("--all", all, "of all users: through the administration's door");
  DeclareAdmin(app, asked, admin);
  auto* top = app.add_subcommand("top", "what the broker holds and does, again and again");
  top->add_option("-n,--count", rounds.count, "so many times; 0 (default): without end");
  top->add_option("-d,--delay", interval_ms, "between two of them: 500ms, 2s (default), 1min")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, uint64_t>{{"ms", 1}, {"s", 1000}, {"min", 60'000}},
                                        CLI::AsNumberWithUnit::UNIT_REQUIRED))
      ->check(CLI::Range(uint64_t{1}, kTimeoutMax));
  top->add_flag("--once", once, "the same as --count 1");
  std::string token_made;
  auto* token_command = app.add_subcommand("token", "what opens a namespace");
  token_command->require_subcommand(1);
  auto* const create = token_command->add_subcommand("create", "make one: print it, or make a file with it");
  create->add_option("FILE", token_made, "must not be there yet");
  ShareArgument share;
  using ShareCommand = Status (*)(Connection&, const Options&, const ShareArgument&, std::ostream&);
  const auto add_share_command = [&](const char* name, const char* help, ShareCommand asks) {
    auto* one = app.add_subcommand(name, help);
    one->add_option("SHARE", share.name, "its name, in the namespace of -n or in 'default'")->required();
    one->add_option("--generation", share.generation, "this generation of it; 0 (default): the newest");
    one->callback([&command, &share, asks] {
      command = [&share, asks](Connection& connection, const Options& given, std::ostream& out) {
        return asks(connection, given, share, out);
      };
    });
    return one;
  };
  add_share_command("show", "what a share is, who made it, how many read it", Show);
  add_share_command("trace", "who made a share and who read it, by which route, what was copied and why", Trace);
  add_share_command("explain", "by which handle each session gets a share, and why not", Explain);
  auto* const withdraw = add_share_command("withdraw", "take a share off its name", Withdraw);
  bool anybodys = false;
  withdraw->add_flag("--admin", anybodys, "through the administration's door: anybody's");
  auto* const withdraw_uid = withdraw->add_option("--uid", asked.uid, "of this user; implies --admin");
  WatchWishes watching;
  auto* watch = app.add_subcommand("watch", "what happens at the broker, as it happens, a line each");
  watch->add_option("--kind", watching.kinds, "only events of this kind; may be said again")
      ->check(CLI::IsMember(EventKinds()));
  watch->add_option("--prefix", watching.name_prefix, "only events of shares whose names start so");
  watch->add_option("--count", watching.count, "end after so many; 0 (default): never");
  watch->callback([&] {
    command = [&watching](Connection& connection, const Options& given, std::ostream& out) {
      return Watch(connection, given, watching, out);
    };
  });
  const auto* completion = app.add_subcommand("completion", "print what a shell needs to complete this command");
  app.get_subcommand("completion")
      ->add_option("SHELL", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.add_subcommand("version", "print this program's version");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  const auto token = FindToken(token_file);
  if (!token.ok()) {
    Fail(token.status());
    return kUsage;
  }
  options.token = *token;
  options.header = !no_header;
  options.output = outputs.at(output);
  options.timeout = std::chrono::milliseconds{timeout_ms};
  if (all) {
    asked.subject = what;
    admin = LsAll;
  }
  if (withdraw->parsed() && (anybodys || withdraw_uid->count() > 0)) {
    asked.subject = share.name;
    admin = Withdraw;
  }
  if (admin != nullptr) return RunAdmin(admin, options, asked);
  if (create->parsed()) {
    const Status made = CreateToken(token_made, std::cout);
    return made.ok() ? kDone : Fail(made);
  }
  if (doctor->parsed()) return RunDoctor(options);
  if (top->parsed()) {
    if (once) rounds.count = 1;
    rounds.interval = std::chrono::milliseconds{interval_ms};
    return RunTop(options, rounds);
  }
  if (completion->parsed()) {
    const std::vector<Choices> choices = {{"--output", {"table", "csv", "json", "jsonl"}},
                                          {"-o", {"table", "csv", "json", "jsonl"}},
                                          {"ls", kinds},
                                          {"quota", {"get", "set"}},
                                          {"config", {"show"}},
                                          {"token", {"create"}},
                                          {"--kind", EventKinds()},
                                          {"completion", {"bash", "zsh", "fish"}}};
    const auto script = Completion(app, choices, shell);
    if (!script.ok()) return Fail(script.status());
    std::cout << *script;
    return kDone;
  }
  if (command == nullptr) {
    std::cout << "arraybridgectl " ARRAYBRIDGE_VERSION "\n";
    return kDone;
  }
  return Run(command, options);
}

}  // namespace
}  // namespace arraybridge::ctl

int main(int argc, char** argv) { return arraybridge::ctl::Main(argc, argv); }

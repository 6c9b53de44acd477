// arraybridgectl asks a running broker through its public door. It never starts one.
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "client/ctl/commands.h"
#include "client/ctl/connection.h"
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

int Run(const Command& command, const Options& options) {
  const auto path = FindBroker(options.address);
  if (!path.ok()) {
    Fail(path.status());
    return kUsage;
  }
  auto connection = Connection::To(*path, options.timeout);
  if (!connection.ok()) return Fail(connection.status());
  const auto status = command(**connection, options, std::cout);
  if (!status.ok()) return Fail(status);
  std::cout.flush();
  if (!std::cout) return Fail(Internal("the output could not be written"));
  return kDone;
}

// A host without a broker has something to tell, too.
int RunDoctor(const Options& options) {
  std::unique_ptr<Connection> connection;
  Status why;
  if (const auto path = FindBroker(options.address); path.ok()) {
    auto made = Connection::To(*path, options.timeout);
    why = made.status();
    if (why.ok()) connection = *std::move(made);
  } else {
    why = path.status();
  }
  const Status found = Doctor(connection.get(), why, options, std::cout);
  std::cout.flush();
  return found.ok() ? kDone : Fail(found);
}

int Main(int argc, char** argv) {
  Options options;
  std::string what = "shares";
  std::string output = "table";
  bool no_header = false;
  uint64_t timeout_ms = 5000;
  Command command;

  CLI::App app{"Asks a running arraybridged.", "arraybridgectl"};
  app.require_subcommand(1);
  app.fallthrough();  // options may follow the command
  app.add_option("-H,--address", options.address,
                 "directory of the broker's sockets, or unix:///path of its gRPC socket; default $ARRAYBRIDGE_ADDRESS, "
                 "$XDG_RUNTIME_DIR/arraybridge, /run/arraybridge");
  app.add_option("-n,--namespace", options.ns, "list this namespace alone");
  app.add_option("-o,--output", output, "table (default) or json")->check(CLI::IsMember({"table", "json"}));
  app.add_option("--timeout", timeout_ms, "how long the whole command may take: 500ms, 5s (default), 2min")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, uint64_t>{{"ms", 1}, {"s", 1000}, {"min", 60'000}},
                                        CLI::AsNumberWithUnit::UNIT_REQUIRED))
      ->check(CLI::Range(uint64_t{0}, kTimeoutMax));
  app.add_flag("--no-header", no_header, "tables without their first line");
  app.add_subcommand("ping", "is it up? Prints ok")->callback([&] { command = Ping; });
  app.add_subcommand("info", "version, state, devices, limits")->callback([&] { command = Info; });
  const auto* doctor = app.add_subcommand("doctor", "what this host and the broker can share, and why not the rest");
  auto* ls = app.add_subcommand("ls", "list what the broker holds");
  ls->add_option("WHAT", what, "shares (default), sessions, leases, namespaces or devices")
      ->check(CLI::IsMember({"shares", "sessions", "leases", "namespaces", "devices"}));
  ls->callback([&] {
    command = [&what](Connection& connection, const Options& given, std::ostream& out) {
      return Ls(connection, given, what, out);
    };
  });
  app.add_subcommand("version", "print this program's version");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  options.header = !no_header;
  options.output = output == "json" ? Output::kJson : Output::kTable;
  options.timeout = std::chrono::milliseconds{timeout_ms};
  if (doctor->parsed()) return RunDoctor(options);
  if (command == nullptr) {
    std::cout << "arraybridgectl " ARRAYBRIDGE_VERSION "\n";
    return kDone;
  }
  return Run(command, options);
}

}  // namespace
}  // namespace arraybridge::ctl

int main(int argc, char** argv) { return arraybridge::ctl::Main(argc, argv); }

// A command asks the broker and prints its answer. Sizes in tables are for people, in JSON they are bytes.
#pragma once

#include <chrono>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "client/ctl/connection.h"
#include "client/ctl/json.h"
#include "client/ctl/table.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// The reason of what the command line is to blame for.
inline constexpr char kUsageReason[] = "USAGE";

enum class Output { kTable, kWide, kCsv, kJson, kJsonl };

struct Options {
  std::string address;
  std::string ns;     // empty: every namespace
  std::string token;  // that sessions state; a secret
  TlsOptions tls;     // for a broker on another host
  Output output = Output::kTable;
  bool header = true;
  Unit unit = Unit::kFitting;  // of sizes in tables
  std::chrono::milliseconds timeout{5000};
};

inline bool IsJson(const Options& options) {
  return options.output == Output::kJson || options.output == Output::kJsonl;
}
inline Style StyleOf(const Options& options) {
  return {options.output == Output::kCsv ? Form::kCsv : Form::kPeople, options.unit, options.output == Output::kWide};
}

// The answer itself, by protobuf's rules: 64-bit numbers are strings, bytes are base64, field names as in the .proto.
// `lines`: without a line end inside, and one behind it.
Status PrintJson(const google::protobuf::Message& message, bool lines, std::ostream& out);
inline Status PrintJson(const google::protobuf::Message& message, const Options& options, std::ostream& out) {
  return PrintJson(message, options.output == Output::kJsonl, out);
}
inline constexpr size_t kWrittenAtOnce = 65536;  // about what a pipe takes
template <class Rows>
Status PrintJsonLines(const Rows& rows, std::ostream& out) {
  const auto layout = JsonLayout::Of(*Rows::value_type::descriptor());
  std::string lines;
  for (const auto& row : rows) {
    if (!layout) {
      AB_RETURN_IF_ERROR(PrintJson(row, true, out));
      continue;
    }
    layout->Append(row, false, &lines);
    lines.push_back('\n');
    if (lines.size() >= kWrittenAtOnce) {
      out << lines;
      lines.clear();
    }
  }
  out << lines;
  return Ok();
}

// The broker that the options name, or the environment. INVALID_ARGUMENT, reason USAGE: they name none.
Result<std::unique_ptr<Connection>> Connect(const Options& options);

// Is it up? UNAVAILABLE while it drains.
Status Ping(Connection& connection, const Options& options, std::ostream& out);
// This program, the broker if one answers, and what either of them speaks. That none answers is no error.
Status Version(const Options& options, std::ostream& out);
Status Info(Connection& connection, const Options& options, std::ostream& out);
// Totals of the whole broker, and how each device is used.
Status ShowStats(Connection& connection, const Options& options, std::ostream& out);
// Of a host whose broker may not answer: it says so. FAILED_PRECONDITION if it found a problem.
// `cuda_driver`: auto, none, or a library.
Status Doctor(const Options& options, const std::string& cuda_driver, std::ostream& out);
// The same and what the frameworks of a Python speak: what `python -m arraybridge doctor` says, of the Python that this
// program was installed into, else of the one in $PATH. NOT_FOUND: there is none.
Status DoctorWithConversions(const Options& options);

// Of a live view: each asks on a connection of its own, so that a broker that restarts is found again.
struct Rounds {
  uint64_t count = 0;  // 0: without end
  std::chrono::milliseconds interval{2000};
  bool clear = true;  // the screen before each, if it is one
};
// Totals, rates per second since the round before, and who holds most.
Status Top(const Options& options, const Rounds& rounds, std::ostream& out);
// Which share is meant: in the namespace of the options, or "default".
struct ShareArgument {
  std::string name;
  uint64_t generation = 0;  // 0: the newest
};
// What it is, who made it, who reads it now.
Status Show(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
// Who made it and who read it, by which route.
Status Trace(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
// By which handle each session would get it, and why not.
Status Explain(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
Status Withdraw(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);

struct WatchWishes {
  std::vector<std::string> kinds;  // none: all
  std::string name_prefix;
  uint64_t count = 0;                  // then it ends; 0: never
  std::chrono::milliseconds since{0};  // first what is known of so long before; 0: nothing
};
// The kinds of events, as people write them: "publish", "session_end".
std::vector<std::string> EventKinds();
// Events, a line each, until there were enough or the broker ends it.
Status Watch(Connection& connection, const Options& options, const WatchWishes& wishes, std::ostream& out);

}  // namespace arraybridge::ctl

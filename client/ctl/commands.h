// A command asks the broker and prints its answer. Sizes in tables are for people, in JSON they are bytes.
#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "client/ctl/connection.h"
#include "client/ctl/table.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

enum class Output { kTable, kCsv, kJson, kJsonl };

struct Options {
  std::string address;
  std::string ns;     // empty: every namespace
  std::string token;  // that sessions state; a secret
  TlsOptions tls;     // for a broker on another host
  Output output = Output::kTable;
  bool header = true;
  std::chrono::milliseconds timeout{5000};
};

inline bool IsJson(const Options& options) {
  return options.output == Output::kJson || options.output == Output::kJsonl;
}
inline Form FormOf(const Options& options) { return options.output == Output::kCsv ? Form::kCsv : Form::kPeople; }

// The answer itself, by protobuf's rules: 64-bit numbers are strings, bytes are base64, field names as in the .proto.
// `lines`: without a line end inside, and one behind it.
Status PrintJson(const google::protobuf::Message& message, bool lines, std::ostream& out);
inline Status PrintJson(const google::protobuf::Message& message, const Options& options, std::ostream& out) {
  return PrintJson(message, options.output == Output::kJsonl, out);
}
template <class Rows>
Status PrintJsonLines(const Rows& rows, std::ostream& out) {
  for (const auto& row : rows) AB_RETURN_IF_ERROR(PrintJson(row, true, out));
  return Ok();
}

// Is it up? UNAVAILABLE while it drains.
Status Ping(Connection& connection, const Options& options, std::ostream& out);
Status Info(Connection& connection, const Options& options, std::ostream& out);
// Totals of the whole broker, and how each device is used.
Status ShowStats(Connection& connection, const Options& options, std::ostream& out);
// `what`: shares, sessions, leases, namespaces, devices.
// Of a host whose broker may not answer: it says so. `connection`: null, and `why` says why there is none.
// FAILED_PRECONDITION if it found a problem.
Status Doctor(Connection* connection, const Status& why, const std::string& socket, const Options& options,
              std::ostream& out);
// Totals, rates per second since `before` (null: none), and who holds most.
// `interval`: since then.
Status Top(Connection& connection, const Options& options, std::chrono::milliseconds interval,
           v1::GetStatsResponse* before, std::ostream& out);
// Asks for page after page and prints them as one. `what`: as of Ls.
using AskPage = std::function<Status(const v1::ListRequest& request, v1::ListResponse* page)>;
Status PrintListed(const std::string& what, const Options& options, const AskPage& ask, std::ostream& out);
Status Ls(Connection& connection, const Options& options, const std::string& what, std::ostream& out);

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
  uint64_t count = 0;  // then it ends; 0: never
};
// The kinds of events, as people write them: "publish", "session_end".
std::vector<std::string> EventKinds();
// Events, a line each, until there were enough or the broker ends it.
Status Watch(Connection& connection, const Options& options, const WatchWishes& wishes, std::ostream& out);

}  // namespace arraybridge::ctl

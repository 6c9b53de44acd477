// SPDX-License-Identifier: Apache-2.0
// A command sends requests to the broker and prints the answer. Tables show sizes with units; JSON and CSV have bytes.
#pragma once

#include <chrono>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "client/ctl/connection.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// The reason of errors that the command line caused.
inline constexpr char kUsageReason[] = "USAGE";

struct Options {
  std::string address;
  std::string ns;     // empty: every namespace
  std::string token;  // stated by sessions; a secret
  Output output = Output::kTable;
  bool header = true;
  Unit unit = Unit::kFitting;  // of sizes in tables
  std::chrono::milliseconds timeout{5000};
};

inline bool IsJson(const Options& options) {
  return options.output == Output::kJson || options.output == Output::kJsonl;
}
inline Style StyleOf(const Options& options) { return {options.output, options.unit}; }

// Prints the message by protobuf's JSON rules: 64-bit numbers are strings, bytes are base64, field names are those of
// the .proto. `lines`: on one line, which ends with a line feed.
Status PrintJson(const google::protobuf::Message& message, bool lines, std::ostream& out);
inline Status PrintJson(const google::protobuf::Message& message, const Options& options, std::ostream& out) {
  return PrintJson(message, options.output == Output::kJsonl, out);
}
inline constexpr size_t kWrittenAtOnce = 65536;  // about what a pipe takes
template <class Rows>
Status PrintJsonLines(const Rows& rows, std::ostream& out) {
  std::string lines;
  for (const auto& row : rows) {
    JsonWriter(false, &lines).Object(row);
    lines.push_back('\n');
    if (lines.size() < kWrittenAtOnce) continue;
    out << lines;
    lines.clear();
  }
  out << lines;
  return Ok();
}

// Connects to the broker that the options or the environment name. INVALID_ARGUMENT, reason USAGE: they name none.
Result<std::unique_ptr<Connection>> Connect(const Options& options);

// Prints ok if the broker serves. UNAVAILABLE: it is draining.
Status Ping(Connection& connection, const Options& options, std::ostream& out);
// Prints the versions and protocols of this program and, if a broker answers, of the broker. No answer is no error.
Status Version(const Options& options, std::ostream& out);
Status Info(Connection& connection, const Options& options, std::ostream& out);
// Prints totals of the whole broker, and the use of each device.
Status ShowStats(Connection& connection, const Options& options, std::ostream& out);

struct DoctorWishes {
  std::string cuda_driver = "auto";     // auto, none, or the path of a library
  std::vector<std::string> frameworks;  // of Python; empty: all
};
// Examines the host, the broker, which need not answer, and the Python that started this program or whose frameworks
// are named. FAILED_PRECONDITION: a problem was found.
Status Doctor(const Options& options, const DoctorWishes& wishes, std::ostream& out);

// The rounds of a live view. Each round makes a connection of its own, so that the view continues after a restart of
// the broker.
struct Rounds {
  uint64_t count = 0;  // 0: without end
  std::chrono::milliseconds interval{2000};
  bool clear = true;  // clears the screen before each round, if the output is a terminal
};
// Prints totals, rates per second since the previous round, and the largest owners.
Status Top(const Options& options, const Rounds& rounds, std::ostream& out);
// Names a share in the namespace of the options, or in "default".
struct ShareArgument {
  std::string name;
  uint64_t generation = 0;  // 0: the newest
};
// Prints what the share is, its maker and its present readers.
Status Show(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
// Prints the maker and the readers of the share, with the route of each.
Status Trace(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
// Prints by which handle each session would get the share, or why it would not.
Status Explain(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
Status Withdraw(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);

// A channel in the namespace of the options, or in "default".
struct ChannelArgument {
  std::string name;
  std::chrono::milliseconds interval{500};  // over which rates are measured
};
// With its ends. NOT_FOUND: the namespace has no such channel.
Result<v1::ChannelInfo> FindChannel(Connection& connection, const Options& options, const std::string& name);
// Prints the channel, its ends, and how many shares pass in a second.
Status ShowChannel(Connection& connection, const Options& options, const ChannelArgument& channel, std::ostream& out);
// Drops the shares that are queued in the channel.
Status DrainChannel(Connection& connection, const Options& options, const ChannelArgument& channel, std::ostream& out);
// As DrainChannel, and removes the channel. FAILED_PRECONDITION: an end is open.
Status RemoveChannel(Connection& connection, const Options& options, const ChannelArgument& channel, std::ostream& out);

struct WatchWishes {
  std::vector<std::string> kinds;  // empty: all kinds
  std::string name_prefix;
  uint64_t count = 0;                  // ends after so many events; 0: never
  std::chrono::milliseconds since{0};  // prints first the sessions and shares that began in this time; 0: none
};
// Names of the kinds of events, as on the command line: "publish", "session_end".
std::vector<std::string> EventKinds();
// Prints one line per event, until `count` is reached or the broker ends the stream.
Status Watch(Connection& connection, const Options& options, const WatchWishes& wishes, std::ostream& out);

}  // namespace arraybridge::ctl

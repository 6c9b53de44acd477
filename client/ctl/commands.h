// A command asks the broker and prints its answer. Sizes in tables are for people, in JSON they are bytes.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>

#include "client/ctl/connection.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

enum class Output { kTable, kCsv, kJson, kJsonl };

struct Options {
  std::string address;
  std::string ns;     // empty: every namespace
  std::string token;  // that sessions state; a secret
  Output output = Output::kTable;
  bool header = true;
  std::chrono::milliseconds timeout{5000};
};

// Is it up? UNAVAILABLE while it drains.
Status Ping(Connection& connection, const Options& options, std::ostream& out);
Status Info(Connection& connection, const Options& options, std::ostream& out);
// Totals of the whole broker, and how each device is used.
Status ShowStats(Connection& connection, const Options& options, std::ostream& out);
// `what`: shares, sessions, leases, namespaces, devices.
// Of a host whose broker may not answer: it says so. `connection`: null, and `why` says why there is none.
// FAILED_PRECONDITION if it found a problem.
Status Doctor(Connection* connection, const Status& why, const Options& options, std::ostream& out);
// Totals, rates per second since `before` (null: none), and who holds most.
// `interval`: since then.
Status Top(Connection& connection, const Options& options, std::chrono::milliseconds interval,
           v1::GetStatsResponse* before, std::ostream& out);
Status Ls(Connection& connection, const Options& options, const std::string& what, std::ostream& out);

}  // namespace arraybridge::ctl

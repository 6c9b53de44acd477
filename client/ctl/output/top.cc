// SPDX-License-Identifier: Apache-2.0
// The live view: totals, rates, and below them the rows of `ls`: who holds memory, and the channels.
#include <unistd.h>

#include <chrono>
#include <ostream>
#include <thread>
#include <utility>

#include "client/ctl/commands.h"
#include "client/ctl/output/listing.h"
#include "client/ctl/output/print.h"

namespace arraybridge::ctl {
namespace {

// Prints one round. `interval`: time since `before`, which is then set to the statistics of this round.
Status ShowRound(Connection& connection, const Options& options, std::chrono::milliseconds interval,
                 v1::GetStatsResponse* before, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto stats, connection.GetStats());
  const v1::GetStatsResponse earlier = std::exchange(*before, stats);
  if (IsJson(options)) return PrintJson(stats, true, out);
  PrintTop(stats, earlier, interval, StyleOf(options), out);
  if (options.output == Output::kCsv) return Ok();
  for (const char* const what : {"namespaces", "sessions", "channels"}) {
    out << '\n';
    AB_RETURN_IF_ERROR(Ls(connection, options, {.what = what}, out));
  }
  return Ok();
}

}  // namespace

Status Top(const Options& options, const Rounds& rounds, std::ostream& out) {
  constexpr char kClear[] = "\x1b[H\x1b[2J";
  const bool clear = rounds.clear && StyleOf(options).people() && ::isatty(STDOUT_FILENO) != 0 && rounds.count != 1;
  v1::GetStatsResponse before;
  auto requested = std::chrono::steady_clock::now();
  for (uint64_t round = 0; out.good() && (rounds.count == 0 || round < rounds.count); ++round) {
    if (round > 0) std::this_thread::sleep_for(rounds.interval);
    const auto now = std::chrono::steady_clock::now();
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - std::exchange(requested, now));
    if (clear) out << kClear;
    AB_ASSIGN_OR_RETURN(const auto connection, Connect(options));
    AB_RETURN_IF_ERROR(ShowRound(*connection, options, since, &before, out));
    out.flush();
  }
  return Ok();
}

}  // namespace arraybridge::ctl

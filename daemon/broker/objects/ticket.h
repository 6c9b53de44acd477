// SPDX-License-Identifier: Apache-2.0
// A Ticket stands for a descriptor on a connection that cannot carry one. It is random, redeemed once, before a
// deadline, by the session that it was issued to. Each session has its own Tickets: a used, an invented and another
// session's ticket are all "not found".
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "proto/boundary/handle.h"

namespace arraybridge::daemon {

struct Ticket {
  std::array<uint8_t, 16> token{};
  ArenaId arena{};
  Access access = Access::kRead;
  std::chrono::steady_clock::time_point deadline;
  uint32_t record = 0;  // in the journal
};

class Tickets {
 public:
  size_t size() const { return tickets_.size(); }
  void Add(const Ticket& ticket) { tickets_.push_back(ticket); }
  // Uses the ticket up. A late ticket is not found. Compares in constant time.
  std::optional<Ticket> Take(std::span<const uint8_t> token, std::chrono::steady_clock::time_point now);
  // Drops and returns the late ones.
  std::vector<Ticket> TakeLate(std::chrono::steady_clock::time_point now);
  const std::vector<Ticket>& all() const { return tickets_; }

 private:
  std::vector<Ticket> tickets_;  // at most Limits.tickets_per_session
};

}  // namespace arraybridge::daemon

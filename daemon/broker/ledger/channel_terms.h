// SPDX-License-Identifier: Apache-2.0
// The roles of a channel's ends, how a channel passes its shares, and how many passed.
#pragma once

#include <cstdint>
#include <optional>

namespace arraybridge::daemon {

enum class ChannelRole : uint8_t { kSender = 1, kReceiver = 2 };
enum class ChannelMode : uint8_t { kUnset, kQueue, kBroadcast, kLatest };

// How a channel passes its shares, as an end states it.
struct ChannelTerms {
  uint64_t capacity = 0;                   // shares, in a broadcast of each receiver; 0: not stated
  ChannelMode mode = ChannelMode::kUnset;  // kUnset: not stated, nor what follows
  std::optional<bool> drop_oldest{};       // a broadcast: what a slow receiver misses; false: senders wait for it
  std::optional<uint64_t> replay{};        // a broadcast: shares that a new receiver gets of those sent before

  bool drops() const { return drop_oldest.value_or(false); }
  uint64_t replayed() const { return replay.value_or(0); }
};

// Shares since the start, of one channel or of all.
struct ChannelTotals {
  uint64_t sent = 0;
  uint64_t received = 0;  // as often as they were received
  uint64_t dropped = 0;   // as often as a receiver missed one, and those that a queue lost
};

}  // namespace arraybridge::daemon

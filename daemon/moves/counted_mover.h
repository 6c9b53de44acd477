// SPDX-License-Identifier: Apache-2.0
// A CountedMover is a Mover that counts its moves: how many, of how many bytes, in how much time, and how they ended.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/mover/mover.h"

namespace arraybridge::daemon {

// kKeep writes a file beside the memory.
enum class MoveKind : uint8_t { kOut, kIn, kKeep, kLast = kKeep };

// The numbers of a tier at one moment, for the people who watch the broker. All are 0 without a directory.
struct TierNumbers {
  struct Moves {
    uint64_t done = 0;
    uint64_t refused =
        0;  // a process reads the share, a limit is reached, the tier is off: nothing is wrong with a file
    uint64_t failed = 0;               // the disk failed, or the file is damaged
    uint64_t bytes = 0;                // of moves that were done
    std::chrono::nanoseconds took{0};  // the same
  };
  std::string off;  // why no files are written; empty: they are
  uint64_t bytes = 0;
  uint64_t bytes_max = 0;
  uint64_t files = 0;
  uint64_t damaged_total = 0;  // files that were changed, cut or removed
  std::array<Moves, static_cast<size_t>(MoveKind::kLast) + 1> moves{};
};

// Thread-safe, as a Mover.
class CountedMover {
 public:
  CountedMover(Tiers& tiers, std::shared_ptr<TierDirectory> directory)
      : tiers_(tiers), mover_(tiers, std::move(directory)) {}

  TierDirectory& directory() const { return mover_.directory(); }
  TierNumbers numbers() const;

  // Counts files that are gone.
  Mover::Found Begin();
  // Counts nothing if the bytes are there already.
  Status MoveOut(const SharePlace& place) { return Counted(MoveKind::kOut, place, &Mover::MoveOut); }
  // Does not count that no memory is free: such a move is tried again.
  Status MoveIn(const SharePlace& place) { return Counted(MoveKind::kIn, place, &Mover::MoveIn); }
  Status Keep(const SharePlace& place) { return Counted(MoveKind::kKeep, place, &Mover::Keep); }
  Status Pin(const SharePlace& place, Rank rank) { return mover_.Pin(place, rank); }
  Status Verify(const SharePlace& place);

 private:
  struct Counts {
    std::atomic<uint64_t> done{0};
    std::atomic<uint64_t> refused{0};
    std::atomic<uint64_t> failed{0};
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> nanoseconds{0};
  };
  Status Counted(MoveKind kind, const SharePlace& place, Status (Mover::*move)(const SharePlace&));
  // A share that was lost before has no file, so its damage counts once.
  void CountDamage(const TieredRow& row, const Status& status);

  Tiers& tiers_;
  Mover mover_;
  std::array<Counts, static_cast<size_t>(MoveKind::kLast) + 1> counts_;
  std::atomic<uint64_t> damaged_{0};
};

}  // namespace arraybridge::daemon

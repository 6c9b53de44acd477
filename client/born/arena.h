// SPDX-License-Identifier: Apache-2.0
// A BornArena is an arena of this session from which only a BornHeap carves. All its ranges are whole pages, so that no
// page has bytes of two arrays.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "client/arenas/placement_range.h"
#include "client/process/coarse_clock.h"
#include "client/session/connection.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// The page size, which is a multiple of the alignment of arrays.
uint64_t BornPage();
// `bytes` in whole pages, at least one; 0 if that overflows.
uint64_t BornPagesOf(uint64_t bytes);

// Not thread-safe.
class BornArena {
 public:
  // Asks the daemon for an arena with room for `bytes`, and maps it. Does not wait for memory: RESOURCE_EXHAUSTED.
  static Result<BornArena> Fetch(Connection& connection, std::string_view ns, uint64_t bytes, Deadline deadline);

  // A range, found by its address from then on; null if there is no room. REQUIRES: `bytes` is of BornPagesOf.
  std::shared_ptr<Placement::Range> Carve(uint64_t bytes);
  bool HasRoom(uint64_t bytes) const;
  // True if nothing else is carved.
  bool is_unused() const { return HasRoom(size() - BornPage()); }
  // False once a fork has made it private: what is written then does not reach readers.
  bool is_shared() const;
  // Nothing is carved from it any more, and blocks of it that are freed are not kept.
  void Abandon();
  // True if it was granted on this session.
  bool is_of(Session& session) const { return &session.releases() == anchor_->releases.get(); }

  std::shared_ptr<Reclaimer> reclaimer() const { return anchor_->reclaimer().shared_from_this(); }
  const WrittenArena& arena() const { return *anchor_->arena; }
  uint64_t size() const { return arena().size; }
  // When a range was carved last, or it was fetched.
  std::chrono::steady_clock::time_point used() const { return used_; }

 private:
  explicit BornArena(std::shared_ptr<Placement::Range> anchor) : anchor_(std::move(anchor)), used_(CoarseNow()) {}

  std::shared_ptr<Placement::Range> anchor_;  // its first page: an arena without a range would be given back
  std::chrono::steady_clock::time_point used_;
};

// Before a fork: separates the arena of this range. REQUIRES: it is of a BornArena.
void MakePrivate(Placement::Range& range) noexcept;
// From now on the process writes the range alone (BornMapping::Part), and it is not published any more by a placement
// that is not found yet. False, and nothing has changed: the range is of no BornArena, or the kernel refuses. REQUIRES:
// no fork happens meanwhile.
bool Part(Placement::Range& range) noexcept;
bool IsParted(const Placement::Range& range);
// Undoes Part, so that the range can be given back. False: it must not be carved again. REQUIRES: IsParted.
bool Join(Placement::Range& range) noexcept;
// True if its BornArena was abandoned. REQUIRES: it is of a BornArena.
bool IsAbandoned(const Placement::Range& range);

}  // namespace arraybridge

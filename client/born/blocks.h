// SPDX-License-Identifier: Apache-2.0
// The blocks of a BornHeap: those that a framework has, by their addresses, and those that it freed lately, which the
// next allocations of the same size take in reverse order, because the latest is in the processor's caches. Not
// thread-safe. A block that dies is handed to the caller, which destroys it without a lock.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/arenas/placement_range.h"

namespace arraybridge {

class BornBlocks {
 public:
  using Dead = std::vector<std::shared_ptr<Placement::Range>>;

  // `recent_bytes_max`: of the blocks that were freed lately; the latest is kept whatever its size.
  explicit BornBlocks(uint64_t recent_bytes_max);

  // Lends the latest freed block of exactly this size; null if there is none. `whole`: of arrays in
  // it, a put copies those that do not fill it.
  std::byte* TakeRecent(uint64_t bytes, bool whole = false);
  std::byte* Add(std::shared_ptr<Placement::Range> range, bool whole = false);
  // False: it is none of the lent blocks. A block that readers may have, or whose arena is private or abandoned, dies.
  bool Return(const std::byte* data, Dead& dead);
  // Null: it is none of the lent blocks.
  const Placement::Range* Find(const std::byte* data) const;
  // Before a fork.
  void MakeLentPrivate() noexcept;
  // The blocks that were freed lately. `of`: null: of all arenas.
  void TakeAllRecent(const WrittenArena* of, Dead& dead);

  uint64_t lent_bytes() const { return lent_bytes_; }
  uint64_t recent_bytes() const { return recent_bytes_; }

 private:
  static constexpr size_t kRecentMax = 64;  // each allocation looks at all of them

  using Blocks = std::unordered_map<const std::byte*, std::shared_ptr<Placement::Range>>;
  using Node = Blocks::node_type;  // moved between the two, so that neither lending nor freeing allocates memory

  void Keep(Node node, Dead& dead);

  const uint64_t recent_bytes_max_;
  Blocks lent_;
  std::vector<Node> recent_;  // the latest last
  Dead stuck_;                // freed, but private to this process for ever
  uint64_t lent_bytes_ = 0;
  uint64_t recent_bytes_ = 0;
};

}  // namespace arraybridge

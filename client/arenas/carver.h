// SPDX-License-Identifier: Apache-2.0
// A Carver divides one arena into ranges (best fit) in granules of 256 bytes, the alignment that every framework
// accepts. It handles offsets only. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/boundary/handle.h"

namespace arraybridge {

class Carver {
 public:
  explicit Carver(uint64_t size);

  // The bytes that a range of `bytes` occupies: a whole number of granules, at least one. 0 if that overflows.
  static uint64_t Granules(uint64_t bytes);

  // The size of the smallest gap that `bytes` fits into.
  std::optional<uint64_t> BestGap(uint64_t bytes);
  // The offset of a range, or nothing. REQUIRES: bytes == Granules(bytes).
  std::optional<uint64_t> Carve(uint64_t bytes);
  // REQUIRES: Carve returned exactly this range, and it has not been given back. Throws bad_alloc; then it is not.
  void Release(uint64_t offset, uint64_t bytes);
  bool empty() const { return carved_ == 0; }

 private:
  struct Gap {
    uint64_t offset;
    uint64_t bytes;
  };

  // The most recent of the recent gaps that has exactly this size.
  std::vector<Gap>::iterator FindRecent(uint64_t bytes);
  // Merges the recent gaps with their neighbours.
  void Settle();
  void Merge(uint64_t offset, uint64_t bytes);
  void Add(uint64_t offset, uint64_t bytes);
  // REQUIRES: `bytes` is less than the gap's size.
  void CutFront(std::map<uint64_t, uint64_t>::iterator gap, uint64_t bytes);
  void Remove(std::map<uint64_t, uint64_t>::iterator gap);

  uint64_t carved_ = 0;                              // bytes
  std::map<uint64_t, uint64_t> gaps_;                // offset -> bytes
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // {bytes, offset}
  // Gaps given back lately and not yet merged. Carving one size repeatedly touches neither tree.
  std::vector<Gap> recent_;
};

}  // namespace arraybridge

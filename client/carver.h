// A Carver cuts one arena into ranges, best fit, in granules of 256 bytes: the alignment that every framework takes.
// It knows offsets only. Not thread-safe.
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

  // Bytes that a range of `bytes` takes: whole granules, at least one. 0 if that overflows.
  static uint64_t Granules(uint64_t bytes);

  // The size of the smallest gap that `bytes` fits into.
  std::optional<uint64_t> BestGap(uint64_t bytes);
  // The offset of a range, or nothing. REQUIRES: bytes == Granules(bytes).
  std::optional<uint64_t> Carve(uint64_t bytes);
  // REQUIRES: exactly a range that Carve gave and nobody gave back.
  void GiveBack(uint64_t offset, uint64_t bytes);
  bool empty() const { return carved_ == 0; }

 private:
  struct Gap {
    uint64_t offset;
    uint64_t bytes;
  };

  // The latest of the recent gaps with exactly this size.
  std::vector<Gap>::iterator FindRecent(uint64_t bytes);
  // Merges the recent gaps with their neighbours.
  void Settle();
  void Merge(uint64_t offset, uint64_t bytes);
  void Add(uint64_t offset, uint64_t bytes);
  // REQUIRES: bytes < gap's.
  void CutFront(std::map<uint64_t, uint64_t>::iterator gap, uint64_t bytes);
  void Remove(std::map<uint64_t, uint64_t>::iterator gap);

  uint64_t carved_ = 0;                              // bytes
  std::map<uint64_t, uint64_t> gaps_;                // offset -> bytes
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // {bytes, offset}
  // Given back lately and not merged: who carves one size again and again needs neither tree.
  std::vector<Gap> recent_;
};

}  // namespace arraybridge

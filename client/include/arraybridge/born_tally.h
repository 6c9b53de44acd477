// SPDX-License-Identifier: Apache-2.0
// A BornTally counts the arrays of one framework in one block of code: those that were born in broker memory, and those
// that were large enough and found none. A BornHeap tells the broker the sum of its tallies about once in a second, so
// that `arraybridgectl ls sessions` and `doctor` have it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/boundary/layouts/born/figures.h"

namespace arraybridge {

// Why an array found no memory of the broker, by its place in born::kReasons.
enum class BornMiss : uint8_t { kNoRoom, kRefused, kZeros, kChild };
constexpr size_t kBornMisses = born::kReasons.size();

// Lock-free.
class BornTally {
 public:
  struct Counts {
    uint64_t arrays = 0;
    uint64_t bytes = 0;
    std::array<uint64_t, kBornMisses> missed{};
    std::array<uint64_t, kBornMisses> missed_bytes{};

    // The arrays since `earlier`. `framework`: a place in born::kFrameworks.
    born::Figures Since(const Counts& earlier, size_t framework) const;
  };

  // REQUIRES: a place in born::kFrameworks.
  explicit BornTally(size_t framework) : framework_(framework) {}

  size_t framework() const { return framework_; }
  void NoteArray(uint64_t bytes) {
    arrays_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void NoteMiss(BornMiss why, uint64_t bytes) {
    missed_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
    missed_bytes_[static_cast<size_t>(why)].fetch_add(bytes, std::memory_order_relaxed);
  }
  Counts counts() const;

 private:
  const size_t framework_;
  std::atomic<uint64_t> arrays_{0};
  std::atomic<uint64_t> bytes_{0};
  std::array<std::atomic<uint64_t>, kBornMisses> missed_{};
  std::array<std::atomic<uint64_t>, kBornMisses> missed_bytes_{};
};

}  // namespace arraybridge

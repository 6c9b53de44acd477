// SPDX-License-Identifier: Apache-2.0
// An AddressSpan is the lowest and the highest address of all mappings that were ever noted. Most arrays lie outside,
// so that it takes no lock to know that they lie in none of them. Thread-safe.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace arraybridge {

class AddressSpan {
 public:
  // Before any thread can have an address of the mapping. REQUIRES: one thread at a time.
  void Note(const void* start, uint64_t bytes) {
    const auto first = std::bit_cast<uintptr_t>(start);
    if (first < first_.load(std::memory_order_relaxed)) first_.store(first, std::memory_order_relaxed);
    if (first + bytes > end_.load(std::memory_order_relaxed)) end_.store(first + bytes, std::memory_order_relaxed);
  }
  // False: the address lies in no mapping.
  bool MayContain(const void* data) const {
    const auto address = std::bit_cast<uintptr_t>(data);
    return address >= first_.load(std::memory_order_relaxed) && address < end_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uintptr_t> first_{UINTPTR_MAX};
  std::atomic<uintptr_t> end_{0};
};

}  // namespace arraybridge

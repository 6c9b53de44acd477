// SPDX-License-Identifier: Apache-2.0
// A Counter hands out numbers that are never used twice: it can count in a word that outlives the process.
#pragma once

#include <cstdint>

namespace arraybridge::daemon {

// Not thread-safe.
class Counter {
 public:
  Counter() = default;
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  uint64_t Next() { return ++*at_; }
  uint64_t last() const { return *at_; }
  void SkipTo(uint64_t number) { *at_ = *at_ < number ? number : *at_; }  // the next one is greater
  // Counts on from the value of this word, which outlives the counter.
  void ContinueIn(uint64_t& word) { at_ = &word; }

 private:
  uint64_t own_ = 0;
  uint64_t* at_ = &own_;
};

}  // namespace arraybridge::daemon

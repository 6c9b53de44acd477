// A HeapUse says when it pays to give free heap back to the system: the C library keeps what is freed until it is told,
// and telling it takes milliseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace arraybridge {

// Bytes are estimates. Not thread-safe.
class HeapUse {
 public:
  void Add(uint64_t bytes) { peak_ = std::max(peak_, used_ += bytes); }
  void Drop(uint64_t bytes) { used_ -= std::min(bytes, used_); }

  // So much was in use once and is free now that a part of it may be worth a trim.
  bool is_slack() const { return peak_ - used_ > std::max(kSlackMin, peak_ / kPart); }
  // It has been given back.
  void Trimmed() { peak_ = used_; }

 private:
  static constexpr uint64_t kSlackMin = 4 << 20;
  static constexpr uint64_t kPart = 8;  // a large one is given back in parts: the C library's lock is held so long

  uint64_t used_ = 0;
  uint64_t peak_ = 0;  // since the last trim
};

}  // namespace arraybridge

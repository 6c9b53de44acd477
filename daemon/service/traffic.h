// Traffic is what came through the doors: how many requests of each verb were answered how, and how long that took.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/broker/snapshot.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe; counting takes no lock.
class Traffic {
 public:
  // Upper ends of the buckets, a factor of about 3 apart. What took longer is in none.
  static constexpr std::array<std::chrono::nanoseconds, 15> kBuckets = {
      std::chrono::microseconds(1),    std::chrono::microseconds(3),    std::chrono::microseconds(10),
      std::chrono::microseconds(30),   std::chrono::microseconds(100),  std::chrono::microseconds(300),
      std::chrono::milliseconds(1),    std::chrono::milliseconds(3),    std::chrono::milliseconds(10),
      std::chrono::milliseconds(30),   std::chrono::milliseconds(100),  std::chrono::milliseconds(300),
      std::chrono::milliseconds(1000), std::chrono::milliseconds(3000), std::chrono::milliseconds(10000)};

  // `verb`: also one that does not exist; `took`: from the request's arrival to its answer.
  void Count(Door door, uint16_t verb, Code code, std::chrono::nanoseconds took);

  struct Answered {
    std::string_view code;
    uint64_t count = 0;
  };
  struct Row {
    Door door{};
    std::string_view verb;
    std::vector<Answered> answers;                   // those that occurred
    std::array<uint64_t, kBuckets.size()> within{};  // cumulative
    uint64_t count = 0;
    std::chrono::nanoseconds sum{};
  };
  // The verbs of each door that were asked for at all.
  std::vector<Row> Rows() const;

 private:
  static constexpr size_t kVerbs = static_cast<size_t>(Verb::kLast) + 1;  // 0: unknown
  static constexpr size_t kCodes = 17;
  struct OfVerb {
    std::array<std::atomic<uint64_t>, kCodes> answers{};
    std::array<std::atomic<uint64_t>, kBuckets.size() + 1> within{};  // not cumulative; the last: longer than all
    std::atomic<uint64_t> sum_ns{0};
  };

  static Row RowOf(Door door, size_t verb, const OfVerb& from);

  std::array<std::array<OfVerb, kVerbs>, 2> doors_;
};

}  // namespace arraybridge

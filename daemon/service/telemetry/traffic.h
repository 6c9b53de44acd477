// SPDX-License-Identifier: Apache-2.0
// Traffic counts what passes through the doors: for each verb the requests in service, the answers by status and their
// durations; and the descriptors that were sent.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/snapshot.h"
#include "daemon/service/wire/passed_fd.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe; counting takes no lock.
class Traffic {
 public:
  // A request without an answer; counted until this object ends. REQUIRES: the Traffic outlives it.
  class InFlight {
   public:
    InFlight() = default;
    explicit InFlight(std::atomic<uint64_t>* of) : of_(of) { of_->fetch_add(1, std::memory_order_relaxed); }
    InFlight(InFlight&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    InFlight& operator=(InFlight&& other) noexcept {
      if (this == &other) return *this;
      End();
      of_ = std::exchange(other.of_, nullptr);
      return *this;
    }
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    ~InFlight() { End(); }

    // Idempotent.
    void End() {
      if (auto* const of = std::exchange(of_, nullptr)) of->fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    std::atomic<uint64_t>* of_ = nullptr;
  };
  // `verb` may be a number that is not a verb.
  InFlight Begin(Door door, uint16_t verb) { return InFlight(&Of(door, verb).in_flight); }
  // `took`: the time from the request's arrival to its answer.
  void Count(Door door, uint16_t verb, Code code, std::chrono::nanoseconds took);
  // So many descriptors of this kind were sent to a client.
  void CountPassed(FdKind kind, size_t count) {
    passed_[static_cast<size_t>(kind)].fetch_add(count, std::memory_order_relaxed);
  }

  struct Answered {
    std::string_view code;
    uint64_t count = 0;
  };
  struct Row : Durations {
    Door door{};
    std::string_view verb;
    std::vector<Answered> answers;  // only codes that occurred
    uint64_t in_flight = 0;
  };
  // The verbs of each door that have been requested.
  std::vector<Row> Rows() const;
  uint64_t passed(FdKind kind) const { return passed_[static_cast<size_t>(kind)].load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kVerbs = static_cast<size_t>(Verb::kLast) + 1;  // 0: unknown
  static constexpr size_t kCodes = 17;
  struct OfVerb {
    std::array<std::atomic<uint64_t>, kCodes> answers{};
    std::array<std::atomic<uint64_t>, kDurationBuckets.size() + 1>
        within{};  // not cumulative; the last bucket is for longer durations
    std::atomic<uint64_t> sum_ns{0};
    std::atomic<uint64_t> in_flight{0};
  };

  static Row RowOf(Door door, size_t verb, const OfVerb& from);

  OfVerb& Of(Door door, uint16_t verb) { return doors_[door == Door::kLifeline ? 0 : 1][verb < kVerbs ? verb : 0]; }

  std::array<std::array<OfVerb, kVerbs>, 2> doors_;
  std::array<std::atomic<uint64_t>, static_cast<size_t>(FdKind::kLast) + 1> passed_{};
};

}  // namespace arraybridge::daemon

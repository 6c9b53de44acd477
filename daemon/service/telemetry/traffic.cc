// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/traffic.h"

#include <algorithm>

namespace arraybridge::daemon {

void Traffic::Count(Door door, uint16_t verb, Code code, std::chrono::nanoseconds took) {
  OfVerb& of = Of(door, verb);
  const size_t answer = std::min(static_cast<size_t>(code), kCodes - 1);
  of.answers[answer].fetch_add(1, std::memory_order_relaxed);
  const auto bucket =
      std::lower_bound(kDurationBuckets.begin(), kDurationBuckets.end(), took) - kDurationBuckets.begin();
  of.within[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  of.sum_ns.fetch_add(static_cast<uint64_t>(std::max<int64_t>(took.count(), 0)), std::memory_order_relaxed);
}

Traffic::Row Traffic::RowOf(Door door, size_t verb, const OfVerb& from) {
  Row row;
  row.door = door;
  row.verb = NameOf(Verb{static_cast<uint16_t>(verb)});
  for (size_t code = 0; code < kCodes; ++code) {
    const uint64_t count = from.answers[code].load(std::memory_order_relaxed);
    if (count > 0) row.answers.push_back({CodeName(Code{static_cast<uint32_t>(code)}), count});
  }
  uint64_t sum = 0;
  for (size_t bucket = 0; bucket < kDurationBuckets.size(); ++bucket) {
    sum += from.within[bucket].load(std::memory_order_relaxed);
    row.within[bucket] = sum;
  }
  row.count = sum + from.within.back().load(std::memory_order_relaxed);
  row.in_flight = from.in_flight.load(std::memory_order_relaxed);
  row.sum = std::chrono::nanoseconds(static_cast<int64_t>(from.sum_ns.load(std::memory_order_relaxed)));
  return row;
}

std::vector<Traffic::Row> Traffic::Rows() const {
  std::vector<Row> rows;
  for (const Door door : {Door::kLifeline, Door::kGrpc}) {
    for (size_t verb = 0; verb < kVerbs; ++verb) {
      Row row = RowOf(door, verb, doors_[door == Door::kLifeline ? 0 : 1][verb]);
      if (row.count > 0 || row.in_flight > 0) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/ledger/flows.h"

#include <algorithm>

namespace arraybridge::daemon {

Flows::Flows(std::span<MemoryBackend* const> backends) {
  for (const MemoryBackend* const backend : backends) {
    for (const Device& device : backend->devices()) RowOf(device, backend->kind());
  }
}

MemoryFlow& Flows::RowOf(const Device& device, HandleKind kind) {
  const auto is_it = [&](const MemoryFlow& row) { return row.kind == kind && row.device == device; };
  const auto found = std::ranges::find_if(rows_, is_it);
  if (found != rows_.end()) return *found;
  rows_.push_back({.device = device, .kind = kind, .took = {}});
  return rows_.back();
}

void Flows::Came(const Device& device, HandleKind kind, uint64_t bytes) {
  MemoryFlow& row = RowOf(device, kind);
  ++row.allocations;
  ++row.allocations_total;
  row.allocated_bytes_total += bytes;
}

void Flows::Took(const Device& device, HandleKind kind, std::chrono::nanoseconds time) {
  Durations& took = RowOf(device, kind).took;
  for (size_t i = 0; i < kDurationBuckets.size(); ++i) took.within[i] += time <= kDurationBuckets[i] ? 1 : 0;
  ++took.count;
  took.sum += time;
}

void Flows::Went(const Device& device, HandleKind kind, uint64_t bytes, FreeCause cause) {
  MemoryFlow& row = RowOf(device, kind);
  --row.allocations;
  row.freed_bytes_total[static_cast<size_t>(cause)] += bytes;
}

}  // namespace arraybridge::daemon

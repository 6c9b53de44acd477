// SPDX-License-Identifier: Apache-2.0
// Flows counts allocated and freed bytes of arenas by device and memory kind.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/broker/ledger/snapshot.h"
#include "daemon/memory/memory_backend.h"

namespace arraybridge::daemon {

class Flows {
 public:
  // Has a row for each device and kind that the backends serve.
  explicit Flows(std::span<MemoryBackend* const> backends);

  void Came(const Device& device, HandleKind kind, uint64_t bytes);
  // The allocation of an arena took this time.
  void Took(const Device& device, HandleKind kind, std::chrono::nanoseconds time);
  void Went(const Device& device, HandleKind kind, uint64_t bytes, FreeCause cause);

  const std::vector<MemoryFlow>& rows() const { return rows_; }

 private:
  MemoryFlow& RowOf(const Device& device, HandleKind kind);

  std::vector<MemoryFlow> rows_;  // one per device and kind
};

}  // namespace arraybridge::daemon

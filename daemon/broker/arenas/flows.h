// Flows are the bytes that came and went: arenas given out and freed, by the memory they are of.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/broker/snapshot.h"
#include "daemon/memory/memory_backend.h"

namespace arraybridge {

class Flows {
 public:
  // A row for whatever these serve, from the start.
  explicit Flows(std::span<MemoryBackend* const> backends);

  void Came(const Device& device, HandleKind kind, uint64_t bytes);
  // An arena of it was made in this time.
  void Took(const Device& device, HandleKind kind, std::chrono::nanoseconds time);
  void Went(const Device& device, HandleKind kind, uint64_t bytes, FreeCause cause);

  const std::vector<MemoryFlow>& rows() const { return rows_; }

 private:
  MemoryFlow& RowOf(const Device& device, HandleKind kind);

  std::vector<MemoryFlow> rows_;  // as many as there are devices and kinds
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Backends holds the broker's memory backends in order of preference: the first one that has a device serves it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/snapshot.h"
#include "daemon/broker/objects/peer.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe.
class Backends {
 public:
  explicit Backends(std::vector<MemoryBackend*> all) : all_(std::move(all)) {}

  // The backend that serves a device to a peer, and the device's full name.
  struct Served {
    MemoryBackend* backend = nullptr;
    Device device;
  };
  // INVALID_ARGUMENT: no such device. FAILED_PRECONDITION: the peer opens none of the handles of the device.
  Result<Served> For(const Peer& peer, const Device& device) const;
  // The sum over all devices; a device of several backends counts once.
  uint64_t CapacityBytes() const;
  // REQUIRES: a backend serves the device.
  uint64_t CapacityBytes(const Device& device) const;
  std::vector<DeviceFacts> Facts() const;
  // Gives cached memory back to the system and returns the number of bytes. `only`: of this device; NOT_FOUND: no such
  // device. Slow.
  Result<uint64_t> Trim(const std::optional<Device>& only) const;

  std::span<MemoryBackend* const> all() const { return all_; }

 private:
  const std::vector<MemoryBackend*> all_;
};

// The row of a device in `facts`, added if it is missing.
DeviceFacts& FactsOf(const Device& device, std::vector<DeviceFacts>& facts);

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// The HostRanges are the pinned host memory of this process: allocated by the driver, or a client's that the client
// registers. Devices reach allocated memory at the host's addresses, and registered memory at addresses of their own,
// which differ, as they do where CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace arraybridge::simulated {

struct HostRange {
  uint64_t size = 0;
  bool registered = false;  // false: allocated by the driver
  bool read_only = false;   // devices may not write it
  bool portable = true;     // for all devices, not only for the one whose context was current
  int ordinal = 0;          // of the device whose context was current
  uint64_t device = 0;      // its first address for devices; 0: they do not reach it
};

// Bytes in a HostRange.
struct HostPlace {
  const HostRange* range = nullptr;
  uint64_t base = 0;       // of the range, for the host
  uint64_t host = 0;       // address of the bytes for the host
  bool of_device = false;  // they were named by the device's address, which the host cannot use

  // The address of the bytes for devices; 0: devices do not reach them.
  uint64_t device() const { return range->device == 0 ? 0 : range->device + (host - base); }
  // True if work of this device may access them.
  bool Allows(int ordinal, bool write) const {
    return range->device != 0 && (range->portable || range->ordinal == ordinal) && !(write && range->read_only);
  }
};

class HostRanges {
 public:
  // REQUIRES: it overlaps no other.
  void Add(uint64_t base, const HostRange& range);
  void Remove(uint64_t base);
  // Of the range that begins there; null: none does.
  const HostRange* At(uint64_t base) const;
  // The bytes [address, address + size) by an address of the host or of devices; nothing: no range contains them.
  std::optional<HostPlace> Find(uint64_t address, uint64_t size = 1) const;
  bool Overlaps(uint64_t base, uint64_t size) const;
  size_t count() const { return ranges_.size(); }

 private:
  std::map<uint64_t, HostRange> ranges_;  // by their addresses for the host
  std::map<uint64_t, uint64_t> mapped_;   // of registered ranges: the address for devices to the one for the host
};

}  // namespace arraybridge::simulated

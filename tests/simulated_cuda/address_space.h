// SPDX-License-Identifier: Apache-2.0
// The AddressSpace maps this process's device addresses to memory: reservations, and the ranges of them that have
// memory. Addresses are reserved without access, so that host code that dereferences one gets SIGSEGV. A freed address
// is reused at once, so that code that cached it reads other bytes, as on hardware.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "proto/boundary/cuda/driver_abi.h"
#include "tests/simulated_cuda/memory_block.h"

namespace arraybridge::simulated {

enum class RangeKind : uint8_t { kVmm, kAlloc, kLegacyImport };

struct Range {
  uint64_t base = 0;
  uint64_t size = 0;
  RangeKind kind = RangeKind::kVmm;
  std::shared_ptr<MemoryBlock> block;
  uint64_t offset = 0;                             // offset of `base` in the block
  uint32_t access = 0;                             // CU_MEM_ACCESS_FLAGS_* for work on the device that owns the memory
  std::map<int32_t, uint32_t> access_of_others{};  // by ordinal; only mapped memory uses it
  uint64_t id = 0;                                 // unique within the process
  uint64_t reservation_base = 0;
  uint64_t reservation_size = 0;
  // For legacy imports: the address that opening returned (the block's start plus an offset), the opened handle, and
  // the count of opens.
  uint64_t opened = 0;
  uint64_t nonce = 0;
  int opens = 0;
};

class AddressSpace {
 public:
  // Reserves address space without memory; 0 if there is none left. REQUIRES: size > 0; alignment is 0 or a power of
  // two.
  uint64_t Reserve(uint64_t size, uint64_t alignment = 0);
  void Free(uint64_t base, uint64_t size) { given_up_.emplace(size, base); }

  // The range that contains [address, address + size), or null.
  Range* Find(uint64_t address, uint64_t size = 1);
  // The bytes at [address, address + size), or null if this access is not allowed.
  std::byte* Bytes(uint64_t address, uint64_t size, cuda::CUmemAccess_flags access);
  // True if the address is in a range or a reservation.
  bool IsDevice(uint64_t address);
  // True if a range overlaps [base, base + size).
  bool Overlaps(uint64_t base, uint64_t size) const;

  std::map<uint64_t, Range> ranges;           // by base
  std::map<uint64_t, uint64_t> reservations;  // cuMemAddressReserve's: base to size

 private:
  std::multimap<uint64_t, uint64_t> given_up_;  // size to base
};

}  // namespace arraybridge::simulated

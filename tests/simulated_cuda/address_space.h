// The AddressSpace is where device addresses of this process point: reservations, and the ranges of them that have
// memory. Addresses are reserved without access, so that a host that follows one ends with SIGSEGV. An address that is
// given up is given out again at once: who cached it reads other bytes, as on hardware.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "proto/boundary/driver_abi.h"
#include "tests/simulated_cuda/memory_block.h"

namespace arraybridge::simulated {

enum class RangeKind : uint8_t { kVmm, kAlloc, kLegacyImport };

struct Range {
  uint64_t base = 0;
  uint64_t size = 0;
  RangeKind kind = RangeKind::kVmm;
  std::shared_ptr<MemoryBlock> block;
  uint64_t offset = 0;                             // of `base` in the block
  uint32_t access = 0;                             // CU_MEM_ACCESS_FLAGS_*, of work on the device where it lies
  std::map<int32_t, uint32_t> access_of_others{};  // by ordinal; mapped memory alone asks for it
  uint64_t id = 0;                                 // unique in the life of the process
  uint64_t reservation_base = 0;
  uint64_t reservation_size = 0;
  // Of legacy imports: the address that opening gave (the block's start plus an offset), what was opened, how often.
  uint64_t opened = 0;
  uint64_t nonce = 0;
  int opens = 0;
};

class AddressSpace {
 public:
  // Address space without memory; 0 if there is none. REQUIRES: size > 0; alignment is 0 or a power of two.
  uint64_t Reserve(uint64_t size, uint64_t alignment = 0);
  void Free(uint64_t base, uint64_t size) { given_up_.emplace(size, base); }

  // The range that holds all of [address, address + size), or null.
  Range* Find(uint64_t address, uint64_t size = 1);
  // The bytes behind [address, address + size), or null if they cannot be accessed in that way.
  std::byte* Bytes(uint64_t address, uint64_t size, cuda::CUmemAccess_flags access);
  // True for addresses inside ranges or reservations.
  bool IsDevice(uint64_t address);
  // True if a range lies partly in [base, base + size).
  bool Overlaps(uint64_t base, uint64_t size) const;

  std::map<uint64_t, Range> ranges;           // by base
  std::map<uint64_t, uint64_t> reservations;  // cuMemAddressReserve's: base to size

 private:
  std::multimap<uint64_t, uint64_t> given_up_;  // size to base
};

}  // namespace arraybridge::simulated

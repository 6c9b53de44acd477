// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/address_space.h"

#include <algorithm>

#include <sys/mman.h>

namespace arraybridge::simulated {

uint64_t AddressSpace::Reserve(uint64_t size, uint64_t alignment) {
  alignment = std::max(alignment, kGranularity);
  const auto same_size = given_up_.equal_range(size);
  for (auto it = same_size.first; it != same_size.second; ++it) {
    const uint64_t base = it->second;
    if (base % alignment != 0) continue;
    given_up_.erase(it);
    return base;
  }
  void* space = mmap(nullptr, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return 0;
  const auto start = reinterpret_cast<uint64_t>(space);
  return (start + alignment - 1) / alignment * alignment;
}

Range* AddressSpace::Find(uint64_t address, uint64_t size) {
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return nullptr;
  Range& range = std::prev(after)->second;
  const uint64_t offset = address - range.base;
  return offset < range.size && size <= range.size - offset ? &range : nullptr;
}

std::byte* AddressSpace::Bytes(uint64_t address, uint64_t size, cuda::CUmemAccess_flags access) {
  Range* range = Find(address, size);
  if (range == nullptr || (range->access & access) != access) return nullptr;
  return range->block->bytes() + range->offset + (address - range->base);
}

bool AddressSpace::IsDevice(uint64_t address) {
  if (Find(address) != nullptr) return true;
  auto after = reservations.upper_bound(address);
  return after != reservations.begin() && address - std::prev(after)->first < std::prev(after)->second;
}

bool AddressSpace::Overlaps(uint64_t base, uint64_t size) const {
  const auto after = ranges.lower_bound(base + size);
  if (after == ranges.begin()) return false;
  const Range& last = std::prev(after)->second;
  return last.base + last.size > base;
}

}  // namespace arraybridge::simulated

// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/host/host_ranges.h"

#include <iterator>

namespace arraybridge::simulated {

void HostRanges::Add(uint64_t base, const HostRange& range) {
  ranges_[base] = range;
  if (range.device != 0 && range.device != base) mapped_[range.device] = base;
}

void HostRanges::Remove(uint64_t base) {
  mapped_.erase(ranges_.at(base).device);
  ranges_.erase(base);
}

const HostRange* HostRanges::At(uint64_t base) const {
  const auto found = ranges_.find(base);
  return found == ranges_.end() ? nullptr : &found->second;
}

std::optional<HostPlace> HostRanges::Find(uint64_t address, uint64_t size) const {
  const auto fits = [size](uint64_t offset, const HostRange& range) {
    return offset < range.size && size <= range.size - offset;
  };
  if (const auto after = mapped_.upper_bound(address); after != mapped_.begin()) {
    const auto& [device, base] = *std::prev(after);
    const HostRange& range = ranges_.at(base);
    if (fits(address - device, range)) return HostPlace{&range, base, base + (address - device), true};
  }
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [base, range] = *std::prev(after);
  if (!fits(address - base, range)) return std::nullopt;
  return HostPlace{&range, base, address, false};
}

bool HostRanges::Overlaps(uint64_t base, uint64_t size) const {
  const auto after = ranges_.lower_bound(base + size);
  if (after == ranges_.begin()) return false;
  const auto& last = *std::prev(after);
  return last.first + last.second.size > base;
}

}  // namespace arraybridge::simulated

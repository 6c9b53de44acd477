// SPDX-License-Identifier: Apache-2.0
#include "client/born/mapping.h"

#include <sys/mman.h>

#include <new>

namespace arraybridge {
namespace {

// The kernel maps as many small pages around one that is read.
constexpr uint64_t kTouchedAtOnce = uint64_t{64} << 10;

}  // namespace

BornMapping::~BornMapping() {
  for (const auto& [offset, shared] : parts_) ::munmap(shared.base, shared.bytes);
}

bool BornMapping::MapPrivate(uint64_t offset, uint64_t bytes) noexcept {
  if (bytes == 0) return true;
  constexpr int kInPlace = MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE;
  const auto from = static_cast<off_t>(offset);
  return ::mmap(data() + offset, bytes, PROT_READ | PROT_WRITE, kInPlace, reader_.get(), from) != MAP_FAILED;
}

// The pages of the file do not change any more: nothing is carved from a private arena, and no other process writes it.
// A part that is private already has pages of its own. If some of the arena is private, a put must not use any of it.
bool BornMapping::MakePrivate() noexcept {
  const MutexLock lock(mutex_);
  if (private_ || !reader_.valid()) return private_;
  uint64_t done = 0;
  bool goes_on = true;
  for (auto part = parts_.begin(); part != parts_.end() && goes_on; ++part) {
    goes_on = MapPrivate(done, part->first - done);
    private_ = private_ || (goes_on && part->first > done);
    done = part->first + part->second.bytes;
  }
  private_ = (goes_on && MapPrivate(done, size() - done)) || private_;
  return private_;
}

bool BornMapping::Part(uint64_t offset, uint64_t bytes) noexcept {
  const MutexLock lock(mutex_);
  if (private_ || !reader_.valid()) return false;
  try {
    const auto part = parts_.try_emplace(offset).first;
    void* const base = ::mremap(data() + offset, 0, bytes, MREMAP_MAYMOVE);  // 0: as a second mapping
    part->second = {base, bytes};
    if (base != MAP_FAILED && ::madvise(base, bytes, MADV_DONTFORK) == 0 && MapPrivate(offset, bytes)) return true;
    if (base != MAP_FAILED) ::munmap(base, bytes);
    parts_.erase(part);
  } catch (const std::bad_alloc&) {
  }
  return false;
}

bool BornMapping::Join(uint64_t offset) noexcept {
  const MutexLock lock(mutex_);
  const auto part = parts_.find(offset);
  if (private_ || part == parts_.end()) return false;
  const auto [base, bytes] = part->second;
  ::madvise(base, bytes, MADV_DOFORK);
  std::byte* const here = data() + offset;
  if (::mremap(base, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, here) == MAP_FAILED) {
    ::madvise(base, bytes, MADV_DONTFORK);
    return false;
  }
  parts_.erase(part);
  for (uint64_t at = 0; at < bytes; at += kTouchedAtOnce) static_cast<void>(static_cast<volatile std::byte*>(here)[at]);
  return true;
}

}  // namespace arraybridge

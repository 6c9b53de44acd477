// SPDX-License-Identifier: Apache-2.0
#include "client/born/mapping.h"

#include <sys/mman.h>

namespace arraybridge {

// The pages of the file do not change any more: nothing is carved from a private arena, and no other process writes it.
bool BornMapping::MakePrivate() noexcept {
  if (private_) return true;
  if (!reader_.valid()) return false;
  constexpr int kInPlace = MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE;
  void* const base = ::mmap(data(), size(), PROT_READ | PROT_WRITE, kInPlace, reader_.get(), 0);
  private_ = base != MAP_FAILED;
  return private_;
}

}  // namespace arraybridge

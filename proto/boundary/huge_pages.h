// SPDX-License-Identifier: Apache-2.0
// Maps files in memory at addresses where the kernel can map whole huge pages: one page fault instead of 512.
#pragma once

#include <cstdint>

namespace arraybridge {

// Calls mmap(2) for `size` bytes of a file from `offset`; returns MAP_FAILED with errno on an error. A mapping that
// holds a whole huge page gets an address that is congruent to its file offset modulo the huge page size. REQUIRES:
// `offset` is a multiple of the page size.
void* MapFile(uint64_t size, int protection, int flags, int fd, uint64_t offset = 0);

}  // namespace arraybridge

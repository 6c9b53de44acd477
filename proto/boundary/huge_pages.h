// Mappings of files in memory at addresses where the kernel can map their huge pages whole: one fault instead of 512.
#pragma once

#include <cstdint>

namespace arraybridge {

// Of x86-64, and of arm64 with small pages of 4 KiB. Elsewhere an address is aligned for nothing, and right.
inline constexpr uint64_t kHugePageBytes = 2ull << 20;

// mmap(2) of `size` bytes of a file from `offset` on, MAP_FAILED and errno included. What holds a whole huge page
// begins as far into one as its bytes do in the file. REQUIRES: offset is a multiple of the page size.
void* MapFile(uint64_t size, int protection, int flags, int fd, uint64_t offset = 0);

}  // namespace arraybridge

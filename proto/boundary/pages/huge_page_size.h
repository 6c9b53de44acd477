// SPDX-License-Identifier: Apache-2.0
// The size of the huge pages that this kernel makes by itself: 2 MiB with pages of 4 KiB, 32 MiB with pages of 16 KiB,
// 512 MiB with pages of 64 KiB. Processors of aarch64 have all three; the kernel chooses one when it is built.
#pragma once

#include <cstdint>

namespace arraybridge {

// A block of memory that is rounded up to larger pages would be mostly waste.
inline constexpr uint64_t kHugePageBytesMax = uint64_t{32} << 20;

// As the kernel says when it is asked first; 2 MiB if it does not say.
uint64_t HugePageBytes();

// The size in the kernel's file: a number of bytes, a power of two. 2 MiB for any other text.
uint64_t HugePageBytesOf(const char* text);

}  // namespace arraybridge

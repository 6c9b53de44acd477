// SPDX-License-Identifier: Apache-2.0
// A range of bytes in an arena.
#pragma once

#include <cstdint>

namespace arraybridge {

struct ByteRange {
  uint64_t offset = 0;
  uint64_t size = 0;

  // Whether all of `inner` lies in this range. No sum is formed, so numbers of a hostile process cannot overflow it.
  constexpr bool Contains(ByteRange inner) const {
    if (inner.offset < offset) return false;
    const uint64_t before = inner.offset - offset;
    return before <= size && inner.size <= size - before;
  }
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// The arithmetic of shapes and strides. They come from untrusted peers, so every step is checked for overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <arraybridge/array_spec.h>

#include "proto/boundary/result.h"

namespace arraybridge::layout {

// NumPy's limit; TensorFlow aborts the process at 255.
inline constexpr size_t kRankMax = 64;
// No address space is larger, and signed arithmetic cannot overflow.
inline constexpr uint64_t kBytesMax = uint64_t{1} << 62;

// The elements that strides can reach, relative to the first one: [lowest, highest], in elements.
struct Extent {
  int64_t lowest = 0;
  int64_t highest = 0;
};

Result<uint64_t> Elements(const std::vector<int64_t>& shape);
// INVALID_ARGUMENT: the type has no bits or no lanes.
Result<uint64_t> CompactBytes(uint64_t elements, DataType type);
// As ArraySpec::compact. REQUIRES: `strides` is empty or has the size of `shape`.
bool IsCompact(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);
// As CompactStrides, into `strides`. REQUIRES: strides.size() == shape.size().
void FillCompactStrides(const std::vector<int64_t>& shape, std::vector<int64_t>& strides);
// REQUIRES: strides.size() == shape.size(), no dimension below 1. INVALID_ARGUMENT: an offset overflows.
Result<Extent> ExtentOf(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);
// Accepts the types that DLPack 1.3 can express: known code and width, one lane. INVALID_ARGUMENT names the defect.
Status CheckType(DataType type);

}  // namespace arraybridge::layout

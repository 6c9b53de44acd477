// SPDX-License-Identifier: Apache-2.0
#include "client/memory/layout.h"

#include <algorithm>

namespace arraybridge::layout {

Result<uint64_t> Elements(const std::vector<int64_t>& shape) {
  if (shape.size() > kRankMax) return InvalidArgument("rank ", shape.size(), " exceeds the limit of ", kRankMax);
  uint64_t product = 1;
  bool empty = false;
  bool overflow = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return InvalidArgument("shape has the negative dimension ", dimension);
    if (dimension == 0) empty = true;
    overflow |= __builtin_mul_overflow(product, static_cast<uint64_t>(dimension), &product);
  }
  if (empty) return uint64_t{0};
  if (overflow || product > kBytesMax) return InvalidArgument("the number of elements overflows 62 bits");
  return product;
}

Result<uint64_t> CompactBytes(uint64_t elements, DataType type) {
  const uint64_t width = uint64_t{type.bits} * type.lanes;
  if (width == 0) return InvalidArgument("dtype has ", int{type.bits}, " bits and ", type.lanes, " lanes");
  uint64_t bits = 0;
  if (width % 8 == 0) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements, width / 8, &bytes) || bytes > kBytesMax)
      return InvalidArgument(elements, " elements of ", width, " bits overflow 62 bits of bytes");
    return bytes;
  }
  if (__builtin_mul_overflow(elements, width, &bits) || bits > kBytesMax)
    return InvalidArgument(elements, " elements of ", width, " bits overflow");
  return (bits + 7) / 8;
}

bool IsCompact(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  if (strides.empty()) return true;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, shape[i], &expected)) return false;
  }
  return true;
}

void FillCompactStrides(const std::vector<int64_t>& shape, std::vector<int64_t>& strides) {
  uint64_t stride = 1;  // unsigned, because the strides of an empty array may wrap and are never used
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(shape[i], 1));
  }
}

Result<Extent> ExtentOf(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  Extent extent;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    int64_t reach = 0;
    int64_t& end = strides[i] < 0 ? extent.lowest : extent.highest;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) || __builtin_add_overflow(end, reach, &end))
      return InvalidArgument("stride ", strides[i], " over ", shape[i], " elements overflows 64 bits");
  }
  return extent;
}

Status CheckType(DataType type) {
  if (type.lanes != 1) return InvalidArgument("dtype has ", type.lanes, " lanes; only 1 is supported");
  if (NameOf(type).empty())
    return InvalidArgument("dtype code ", int{type.code}, " with ", int{type.bits}, " bits is not supported");
  return Ok();
}

}  // namespace arraybridge::layout

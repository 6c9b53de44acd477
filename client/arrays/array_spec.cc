// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/array_spec.h>

#include <algorithm>
#include <string_view>

#include "client/memory/layout.h"

namespace arraybridge {

namespace {

struct NamedType {
  std::string_view name;
  DataType type;
};

// The types of DLPack 1.3, with the names of NumPy and ml_dtypes. OpaqueHandle (3) is omitted because it is not a
// number.
constexpr NamedType kTypes[] = {
    {"float32", {2, 32}},
    {"float64", {2, 64}},
    {"uint8", {1, 8}},
    {"int64", {0, 64}},
    {"int32", {0, 32}},
    {"bool", {6, 8}},
    {"float16", {2, 16}},
    {"bfloat16", {4, 16}},
    {"int8", {0, 8}},
    {"int16", {0, 16}},
    {"uint16", {1, 16}},
    {"uint32", {1, 32}},
    {"uint64", {1, 64}},
    {"complex64", {5, 64}},
    {"complex128", {5, 128}},
    {"complex32", {5, 32}},
    {"float8_e3m4", {7, 8}},
    {"float8_e4m3", {8, 8}},
    {"float8_e4m3b11fnuz", {9, 8}},
    {"float8_e4m3fn", {10, 8}},
    {"float8_e4m3fnuz", {11, 8}},
    {"float8_e5m2", {12, 8}},
    {"float8_e5m2fnuz", {13, 8}},
    {"float8_e8m0fnu", {14, 8}},
    {"float6_e2m3fn", {15, 6}},
    {"float6_e3m2fn", {16, 6}},
    {"float4_e2m1fn", {17, 4}},
};

}  // namespace

Result<uint64_t> ArraySpec::elements() const { return layout::Elements(shape); }

Result<uint64_t> ArraySpec::compact_bytes() const {
  AB_ASSIGN_OR_RETURN(const auto count, elements());
  return layout::CompactBytes(count, type);
}

bool ArraySpec::compact() const {
  return (strides.empty() || strides.size() == shape.size()) && layout::IsCompact(shape, strides);
}

Status ArraySpec::CheckInside(uint64_t bytes) const {
  AB_ASSIGN_OR_RETURN(const auto count, elements());
  AB_ASSIGN_OR_RETURN(const auto needed, layout::CompactBytes(count, type));
  if (!strides.empty() && strides.size() != shape.size())
    return InvalidArgument(strides.size(), " strides for ", shape.size(), " dimensions");
  if (offset > bytes) return InvalidArgument("offset ", offset, " lies outside ", bytes, " bytes");
  if (count == 0) return Ok();
  const uint64_t available = bytes - offset;
  if (compact()) {
    if (needed > available) return InvalidArgument(needed, " bytes at offset ", offset, " exceed ", bytes, " bytes");
    return Ok();
  }
  const uint64_t width = uint64_t{type.bits} * type.lanes;
  if (width % 8 != 0) return InvalidArgument("elements of ", width, " bits must be compact");
  AB_ASSIGN_OR_RETURN(const auto extent, layout::ExtentOf(shape, strides));
  // -lowest and highest + 1 cannot overflow as unsigned numbers. Dividing instead of multiplying avoids overflow in the
  // comparison.
  const uint64_t item = width / 8;
  if (0 - static_cast<uint64_t>(extent.lowest) > offset / item)
    return InvalidArgument("strides reach ", extent.lowest, " elements below the start, offset is ", offset, " bytes");
  if (static_cast<uint64_t>(extent.highest) + 1 > available / item)
    return InvalidArgument("strides reach element ", extent.highest, " at offset ", offset, " of ", bytes, " bytes");
  return Ok();
}

std::vector<int64_t> CompactStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  layout::FillCompactStrides(shape, strides);
  return strides;
}

std::string NameOf(DataType type) {
  for (const NamedType& known : kTypes)
    if (known.type == type) return std::string(known.name);
  return {};
}

bool IsNameOf(std::string_view name, DataType type) {
  for (const NamedType& known : kTypes)
    if (known.type == type) return name == known.name;
  return name.empty();
}

DataType TypeNamed(const std::string& name) {
  for (const NamedType& known : kTypes)
    if (name == known.name) return known.type;
  return {};
}

}  // namespace arraybridge

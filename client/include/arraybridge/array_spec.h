// SPDX-License-Identifier: Apache-2.0
// An ArraySpec describes how to read bytes as an array: element type, shape, strides, position of the first element. A
// value type; arraybridge.v1.ArraySpec on the wire.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// DLPack's DLDataType: code, bits of one lane, lanes (always 1 in a share).
struct DataType {
  uint8_t code = 0;
  uint8_t bits = 0;
  uint16_t lanes = 1;

  friend bool operator==(const DataType&, const DataType&) = default;
};

struct ArraySpec {
  DataType type;
  std::string dtype;             // logical name: "float32", "bfloat16"
  std::vector<int64_t> shape;    // elements; empty: a scalar
  std::vector<int64_t> strides;  // elements; empty: compact row-major
  uint64_t offset = 0;           // bytes from the start of the share

  // Product of the shape; INVALID_ARGUMENT on a negative dimension or an overflow.
  Result<uint64_t> elements() const;
  // Bytes of a compact array of this shape and type; packed sub-byte types are rounded up over the whole array.
  // INVALID_ARGUMENT as above.
  Result<uint64_t> compact_bytes() const;
  // True if strides are absent or those of compact row-major order; strides of dimensions of size 1 are ignored.
  bool compact() const;
  // OK if every element lies inside [0, bytes) of the share. INVALID_ARGUMENT names what does not fit.
  Status CheckInside(uint64_t bytes) const;

  friend bool operator==(const ArraySpec&, const ArraySpec&) = default;
};

// Row-major strides, in elements, of a shape.
std::vector<int64_t> CompactStrides(const std::vector<int64_t>& shape);

// "float32" for {2, 32}, "bool" for {6, 8}, "" for a type without a name; and the reverse: code 0 and bits 0 if
// unknown.
std::string NameOf(DataType type);
// True if name == NameOf(type); does not allocate.
bool IsNameOf(std::string_view name, DataType type);
DataType TypeNamed(const std::string& name);

}  // namespace arraybridge

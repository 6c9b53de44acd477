// SPDX-License-Identifier: Apache-2.0
// A Form is the buffers and children that an Arrow array of a format has. A value.
// Source: https://arrow.apache.org/docs/format/CDataInterface.html#data-type-description-format-strings
// and https://arrow.apache.org/docs/format/Columnar.html.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <arraybridge/array_spec.h>

namespace arraybridge::tables {

inline constexpr DataType kInt8{0, 8}, kInt32{0, 32}, kUint8{1, 8};

enum class Kind : uint8_t {
  kNull,
  kBits,
  kFixed,
  kText,
  kView,
  kList,
  kListView,
  kFixedList,
  kStruct,
  kSparseUnion,
  kDenseUnion,
  kRunEnds,
};

struct Form {
  Kind kind;
  DataType type{};       // of the elements of a fixed kind, or of the offsets of a text or a list
  int64_t width = 1;     // elements of `type` for each element of a fixed kind
  int64_t children = 0;  // their number; -1: any
  int64_t per_row = 0;   // of a list of a fixed size: elements of a row

  bool validity() const;   // true if the first buffer says which elements are null
  size_t buffers() const;  // their number; of a binary view without those of its data
};

// Nothing: the format is none of Arrow 1.5's C data interface. Timestamps may have any zone.
std::optional<Form> FormOf(std::string_view format);

}  // namespace arraybridge::tables

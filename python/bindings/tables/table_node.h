// SPDX-License-Identifier: Apache-2.0
// A Node is the description of an Arrow array and its schema, as another process wrote it: the grammar is that of
// `tables.nodes` in Python. Its buffers are numbers of the share's arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::tables {

inline constexpr int kDepthMax = 48;                     // of nested types
inline constexpr int64_t kNumberMax = int64_t{1} << 62;  // of lengths and of flags
inline constexpr int64_t kNone = -1;                     // the buffer of an array that has no validity

struct Node {
  std::string format, name;                  // without zero bytes
  std::string metadata;                      // of the C data interface: entries that lie in these bytes, or empty
  int64_t flags = 0, length = 0, nulls = 0;  // 0 to kNumberMax
  std::vector<int64_t> buffers;              // kNone, or 0 to kNumberMax
  std::vector<Node> children;
  std::unique_ptr<Node> dictionary;  // the values; the array's own are indices then
};

// The part of a share's structure that describes a table.
struct Description {
  std::string kind;  // "table", "column" or "series"
  Node node;
  int64_t first = 0, count = 0;  // the arrays of the share that are its buffers
};

// Reads [kind, node, first, count], or {"table": the same}. INVALID_ARGUMENT: the text violates the grammar.
Result<Description> ReadDescription(std::string_view text);

}  // namespace arraybridge::tables

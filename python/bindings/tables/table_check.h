// SPDX-License-Identifier: Apache-2.0
// Checks a table that another process described, before a library gets it: libraries trust lengths and offsets, and
// would read other memory of this process. It takes the same time for each column, whatever its length is: all sizes,
// and the first and the last offsets. `tables.validation` in Python reads the values.
#pragma once

#include <cstdint>
#include <span>

#include <arraybridge/array_spec.h>
#include "python/bindings/tables/table_node.h"

namespace arraybridge::tables {

// An array of the share, for the time of the check.
struct Buffer {
  const void* data = nullptr;
  uint64_t elements = 0;
  DataType type;
  bool plain = false;  // it lies in host memory, compact, with one dimension and a dtype that DLPack has
};

// INVALID_ARGUMENT names the column and its defect. Reads at most two elements of a buffer, which has them.
Status Check(const Node& node, std::span<const Buffer> buffers);

}  // namespace arraybridge::tables

// SPDX-License-Identifier: Apache-2.0
// Parts are a table in memory of the broker: what the C structures of Arrow point into. They are immutable, and each
// structure keeps them, so that a consumer may keep one column and release the others. Structures are released on any
// thread, without the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python/bindings/tables/arrow_structures.h"
#include "python/bindings/tables/table_check.h"
#include "python/bindings/tables/table_node.h"

namespace arraybridge::tables {

struct Parts {
  Description description;
  std::vector<Buffer> buffers;                      // from the description's first to its last
  std::vector<std::shared_ptr<const void>> owners;  // of the memory
  uint64_t nbytes = 0;                              // of the buffers
};

// REQUIRES: `Check` found the node to be valid; `parts` are its own.
void Export(const Node& node, const std::shared_ptr<const Parts>& parts, python::ArrowSchema* schema);
void Export(const Node& node, const std::shared_ptr<const Parts>& parts, python::ArrowArray* array);
// A stream of this one array.
void Export(const Node& node, const std::shared_ptr<const Parts>& parts, python::ArrowArrayStream* stream);

}  // namespace arraybridge::tables

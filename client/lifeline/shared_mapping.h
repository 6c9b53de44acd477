// SPDX-License-Identifier: Apache-2.0
// A SharedMapping is memory that a session shares with the broker only. Not mapped in forked children (MADV_DONTFORK),
// which must not act for their parent.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Unmapped by the destructor.
class SharedMapping {
 public:
  // Maps all of `file`, shared. `protection`: as for mmap. `what`: for messages, such as "a hazard page".
  // FAILED_PRECONDITION: the file does not have exactly `bytes` bytes, could shrink, or cannot be kept from children.
  // RESOURCE_EXHAUSTED: no address space.
  static Result<SharedMapping> Map(const UniqueFd& file, uint64_t bytes, int protection, std::string_view what);
  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept { *this = std::move(other); }
  SharedMapping& operator=(SharedMapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMapping();

  void* base() const { return base_; }

 private:
  SharedMapping(void* base, uint64_t bytes) : base_(base), bytes_(bytes) {}

  void* base_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace arraybridge

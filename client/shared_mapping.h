// Pages that a session of this process shares with the broker and with nobody else: a forked child has them not, since
// it must not speak for its parent.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Mapped as long as it lives.
class SharedMapping {
 public:
  // Maps all of `file`, shared. `protection`: as of mmap; `what`: "a page of holds". FAILED_PRECONDITION: it has not
  // just so many bytes, or could shrink, or cannot be kept from children. RESOURCE_EXHAUSTED: no address space.
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

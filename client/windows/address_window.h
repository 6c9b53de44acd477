// SPDX-License-Identifier: Apache-2.0
// An AddressWindow is three ranges of addresses of this process: the live one, which readers read; one beside, in which
// the next content is mapped; and one aside, to which the old content goes. All three are reserved for its whole life:
// an address that were free for a moment could become another thread's stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "proto/boundary/result.h"

namespace arraybridge {

uint64_t WindowPageSize();

// Not thread-safe, except that other threads may read the live range at any time.
class AddressWindow {
 public:
  // The live range has `bytes` addresses, in whole pages. It begins at the place of a huge page that `file_offset` has,
  // so that the kernel can map huge pages of files there. RESOURCE_EXHAUSTED. REQUIRES: both are multiples of
  // WindowPageSize().
  static Result<std::unique_ptr<AddressWindow>> Reserve(uint64_t bytes, uint64_t file_offset);
  ~AddressWindow();
  AddressWindow(const AddressWindow&) = delete;
  AddressWindow& operator=(const AddressWindow&) = delete;

  const std::byte* live() const { return live_; }
  uint64_t bytes() const { return bytes_; }

  // Maps the file beside, read-only, and populates the page tables. RESOURCE_EXHAUSTED. REQUIRES: `offset` is a
  // multiple of WindowPageSize(), and the file never becomes shorter. The caller may close the descriptor afterwards.
  Status MapBeside(int descriptor, uint64_t offset);
  // Moves the live content aside and the content beside into the live range. The kernel moves page tables, in 0.3 ms a
  // GiB of small pages. A reader between the two steps faults, and reads old bytes. RESOURCE_EXHAUSTED: the live range
  // has its old content. UNIMPLEMENTED, NO_MOVE: the kernel is older than Linux 5.13. REQUIRES: MapBeside.
  Status Move();
  // Makes the ranges beside and aside inaccessible, which takes 60 ms a GiB. RESOURCE_EXHAUSTED: they are as before.
  Status Clear();

 private:
  AddressWindow(std::byte* reserved, uint64_t reserved_bytes, uint64_t stride, uint64_t skip, uint64_t bytes);

  std::byte* const reserved_;
  const uint64_t reserved_bytes_;
  const uint64_t bytes_;
  std::byte* const live_;
  std::byte* const beside_;
  std::byte* const aside_;
};

}  // namespace arraybridge

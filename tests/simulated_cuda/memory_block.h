// SPDX-License-Identifier: Apache-2.0
// A MemoryBlock is physical device memory: a memfd with a header, mapped at an address that clients do not know. It
// lives while a handle, a mapping or a queued copy of this process refers to it; other processes hold its descriptor
// themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "proto/boundary/unique_fd.h"
#include "tests/simulated_cuda/shared_layout.h"

namespace arraybridge::simulated {

// A random number that is never 0.
uint64_t Nonce();
// The nonce of this process, constant during its life.
uint64_t ProcessNonce();

class MemoryBlock {
 public:
  // Creates a block of bytes 0xCD. `used` counts the bytes while the block lives. Null if the system has no memory.
  static std::shared_ptr<MemoryBlock> Create(uint64_t size, int device, BlockKind kind, uint32_t handle_types,
                                             uint64_t* used);
  // Opens a block by its descriptor, which the caller keeps. Null if the descriptor is not of a block.
  static std::shared_ptr<MemoryBlock> Open(int descriptor);

  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;
  ~MemoryBlock();

  BlockHeader& header() const { return *header_; }
  std::byte* bytes() const { return bytes_; }
  uint64_t size() const { return size_; }
  int device() const { return header_->device; }
  int descriptor() const { return descriptor_.get(); }

 private:
  MemoryBlock(UniqueFd descriptor, void* mapping, uint64_t size);

  UniqueFd descriptor_;
  BlockHeader* header_;
  std::byte* bytes_;
  uint64_t size_;
  uint64_t* used_ = nullptr;
};

}  // namespace arraybridge::simulated

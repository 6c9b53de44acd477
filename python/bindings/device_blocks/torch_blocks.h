// SPDX-License-Identifier: Apache-2.0
// TorchBlocks are the segments that a memory pool of PyTorch takes on one thread, as blocks of a broker. PyTorch's
// allocator calls two C functions for them, with its own lock held and on any thread, so they never take the GIL: a
// thread with the GIL may wait for that lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>

#include <arraybridge/broker.h>

#include <arraybridge/device_blocks/kept_arrays.h>
#include "proto/boundary/mutex.h"

namespace arraybridge::python {

// Counts is thread-safe; the rest belongs to the thread that enters it.
class TorchBlocks {
 public:
  // `kept`: the tensors that were published in place. It may have those of other TorchBlocks, too.
  explicit TorchBlocks(std::shared_ptr<KeptArrays> kept) : kept_(std::move(kept)) {}

  // From now on, until Leave, the pools of this thread take their segments from the Broker of `core`, a Core. They
  // nest.
  void Enter(pybind11::object core);
  void Leave();
  // Segments and bytes that were taken, both of those that were refused, and the latest refusal.
  pybind11::tuple Counts() const;

  // A segment, or null: the framework then reports that it has no memory. Waits for memory once. REQUIRES: between
  // Enter and Leave.
  void* Allocate(uint64_t bytes, int32_t ordinal) noexcept;

 private:
  struct Numbers {
    uint64_t blocks = 0;
    uint64_t bytes = 0;
    uint64_t refused = 0;
    uint64_t refused_bytes = 0;
    std::string refusal;
  };

  const std::shared_ptr<KeptArrays> kept_;
  pybind11::object core_;
  Broker* broker_ = nullptr;
  TorchBlocks* before_ = nullptr;
  mutable Mutex mutex_;
  Numbers numbers_ AB_GUARDED_BY(mutex_);
};

void AddTorchBlocks(pybind11::module_& module);

}  // namespace arraybridge::python

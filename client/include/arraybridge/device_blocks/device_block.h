// SPDX-License-Identifier: Apache-2.0
// A DeviceBlock is memory of the broker on a GPU, which the allocator of a framework hands out. A put of an array that
// fills the block publishes it without a copy; a smaller part of it is copied. When a block is destroyed, its memory is
// used again after all work has ended that this process has queued on the GPU, and after the last reader.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <arraybridge/broker.h>

#include <arraybridge/device_blocks/kept_arrays.h>
#include "proto/boundary/result.h"

namespace arraybridge {

class DeviceBlock {
 public:
  struct Wish {
    Device device;
    uint64_t bytes = 0;
    uint64_t whole_from = 0;  // an array of at least so many bytes fills the block
    // Of a framework that may use the memory of an array again before it frees the block; otherwise null.
    std::shared_ptr<KeptArrays> kept;
    std::optional<std::chrono::milliseconds> timeout;  // to wait for memory; none: that of the Broker
  };
  // The errors of Broker::Empty.
  static Result<DeviceBlock> Of(Broker& broker, const Wish& wish);

  std::byte* data() const;
  // Whole granules.
  uint64_t size() const;
  // True if no other process has the block and no array of this process refers to it, so that it can be handed out
  // again. REQUIRES: the framework has freed it.
  bool is_unshared() const;

 private:
  explicit DeviceBlock(std::shared_ptr<Placement::Range> range) : range_(std::move(range)) {}

  std::shared_ptr<Placement::Range> range_;
};

}  // namespace arraybridge

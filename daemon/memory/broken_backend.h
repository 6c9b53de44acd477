// SPDX-License-Identifier: Apache-2.0
// A BrokenBackend represents devices that could not be used when the daemon started. It allocates nothing; it exists so
// that the list of devices shows them, each with the reason.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "daemon/memory/memory_backend.h"

namespace arraybridge::daemon {

class BrokenBackend final : public MemoryBackend {
 public:
  // `refusals`: each names a device and the error.
  BrokenBackend(HandleKind kind, std::vector<Refusal> refusals) : kind_(kind), refusals_(std::move(refusals)) {}

  HandleKind kind() const override { return kind_; }
  std::vector<Device> devices() const override { return {}; }
  std::vector<Refusal> refusals() const override { return refusals_; }
  uint64_t Footprint(const Device& /*device*/, uint64_t /*size*/) const override { return 0; }
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t /*size*/) override {
    return Unavailable("device ", device.uuid, " could not be used when the broker started").Because("DEVICE_LOST");
  }
  Usage usage(const Device& /*device*/) const override { return {}; }
  uint64_t Trim() override { return 0; }

 private:
  const HandleKind kind_;
  const std::vector<Refusal> refusals_;
};

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// The common part of both GPU backends: reserving, creating and clearing blocks, the list of GPUs, and the number of
// bytes in use on each.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/memory/cuda/cuda_gpu.h"
#include "daemon/memory/memory_backend.h"

namespace arraybridge::daemon {

// A block's GPU and the capacity that it uses. The capacity is returned after the bytes are freed.
class CudaBlock : public MemoryBlock {
 public:
  CudaBlock(std::shared_ptr<CudaGpu> gpu, Reservation reservation, uint64_t size)
      : reservation_(std::move(reservation)), gpu_(std::move(gpu)), size_(size) {}

  uint64_t size() const override { return size_; }
  // The owner of device memory cannot make a handle of it read-only.
  Result<Immutability> Seal() override { return Immutability::kByContract; }
  bool MayBeEnforced() const override { return false; }
  bool KnowsHolders() const override { return false; }
  bool HeldElsewhere() const override { return false; }
  // New device memory may contain data of other processes.
  virtual Status Clear() const = 0;

 protected:
  const CudaGpu& gpu() const { return *gpu_; }
  Handle Described(HandleKind kind) const {
    Handle handle;
    handle.kind = kind;
    handle.size = handle.arena_size = size_;
    handle.device = gpu_->device();
    return handle;
  }

 private:
  const Reservation reservation_;
  const std::shared_ptr<CudaGpu> gpu_;
  const uint64_t size_;
};

class CudaBackend : public MemoryBackend {
 public:
  // `why_not`: the reason why this backend cannot share a GPU; empty if it can.
  using WhyNot = std::string CudaGpu::Refusals::*;
  CudaBackend(std::vector<std::shared_ptr<CudaGpu>> gpus, WhyNot why_not) : gpus_(std::move(gpus)), why_not_(why_not) {}

  std::vector<Device> devices() const override {
    std::vector<Device> devices;
    for (const auto& gpu : gpus_) {
      if (Serves(*gpu)) devices.push_back(gpu->device());
    }
    return devices;
  }
  std::vector<Refusal> refusals() const override {
    std::vector<Refusal> refusals;
    for (const auto& gpu : gpus_) {
      if (const Status serving = gpu->CheckServing(); !serving.ok()) {
        refusals.push_back({gpu->device(), serving.message(), RefusalCause::kFailed});
      } else if (!Serves(*gpu)) {
        const std::vector<HandleKind>& unlisted = gpu->refusals().unlisted;
        const bool configured = std::ranges::find(unlisted, kind()) != unlisted.end();
        refusals.push_back({gpu->device(), gpu->refusals().*why_not_,
                            configured ? RefusalCause::kConfiguration : RefusalCause::kHardware});
      }
    }
    return refusals;
  }
  Usage usage(const Device& device) const override {
    const auto gpu = Find(device);
    return gpu == nullptr ? Usage{} : Usage{gpu->capacity()->bytes(), gpu->capacity()->used(), 0};
  }
  uint64_t Trim() override { return 0; }

  uint64_t Footprint(const Device& device, uint64_t size) const override {
    const auto gpu = Find(device);
    const uint64_t unit = gpu == nullptr ? 0 : UnitOf(*gpu);
    if (size == 0 || unit == 0 || size > std::numeric_limits<uint64_t>::max() - (unit - 1)) return 0;
    return (size + unit - 1) / unit * unit;
  }
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    const auto gpu = Find(device);
    if (gpu == nullptr) return InvalidArgument("no such device: ", device.uuid);
    AB_RETURN_IF_ERROR(gpu->CheckServing());
    const uint64_t footprint = Footprint(device, size);
    if (footprint == 0) return InvalidArgument("a block cannot have 0 bytes or more than 2^64 bytes");
    AB_RETURN_IF_ERROR(gpu->capacity()->Reserve(footprint));
    AB_ASSIGN_OR_RETURN(auto block, Create(gpu, Reservation(gpu->capacity(), footprint), footprint));
    AB_RETURN_IF_ERROR(block->Clear());
    return std::unique_ptr<MemoryBlock>(std::move(block));
  }

 protected:
  // Null if the device is not one of this backend's GPUs.
  std::shared_ptr<CudaGpu> Find(const Device& device) const {
    for (const auto& gpu : gpus_) {
      if (gpu->device() == device && Serves(*gpu)) return gpu;
    }
    return nullptr;
  }
  // The size of a block is a multiple of this number of bytes.
  virtual uint64_t UnitOf(const CudaGpu& gpu) const = 0;
  // Creates a block of whole units that is not yet cleared.
  virtual Result<std::unique_ptr<CudaBlock>> Create(const std::shared_ptr<CudaGpu>& gpu, Reservation reservation,
                                                    uint64_t footprint) = 0;

 private:
  bool Serves(const CudaGpu& gpu) const { return (gpu.refusals().*why_not_).empty(); }

  const std::vector<std::shared_ptr<CudaGpu>> gpus_;
  const WhyNot why_not_;
};

}  // namespace arraybridge::daemon

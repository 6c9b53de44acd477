// SPDX-License-Identifier: Apache-2.0
// A HostRegistration is an arena of the broker that a GPU reads where it lies: a mapping of its own, registered with
// the driver. A torch tensor of registered memory counts as pinned, and some frameworks refuse that; so it is not the
// mapping that the CPU's arrays use. The arena keeps it (KeptMappings), and an array that uses it keeps the arena.
#pragma once

#include <memory>
#include <optional>

#include "client/arenas/arena_cache.h"
#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/memory_mapper.h"

namespace arraybridge {

// REQUIRES: no work that uses it is left when it is destroyed.
class HostRegistration final : public Mapping {
 public:
  // The one that the arena keeps for this GPU, or a new one. UNIMPLEMENTED, RESOURCE_EXHAUSTED as GpuViewOf. Errors of
  // the driver. REQUIRES: the arena is mapped, and lies in host memory.
  static Result<std::shared_ptr<HostRegistration>> Of(const CudaDevices& devices, int32_t ordinal, ReadArena& arena);
  // The arena's own address of the bytes at `address` of the GPU; null: they lie in no registered arena.
  static std::byte* HostAddressOf(int32_t ordinal, const void* address, uint64_t bytes);
  static uint64_t Living();
  ~HostRegistration() override;
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;

  std::byte* data() const override { return device_; }  // the GPU's address
  uint64_t size() const override { return size_; }
  Status CopyFrom(const View& source, uint64_t offset) override;
  std::shared_ptr<DeviceEvent> Now() override;
  // CUDA does not work in a forked child.
  void Detach() noexcept override {}

 private:
  HostRegistration(const CudaDevices& devices, int32_t ordinal, const ReadArena& arena)
      : devices_(devices), ordinal_(ordinal), size_(arena.handle.arena_size), host_(arena.shared->data()) {}
  Status Register(int descriptor);

  const CudaDevices& devices_;
  const int32_t ordinal_;
  const uint64_t size_;
  std::byte* const host_;  // the arena's own address
  void* base_ = nullptr;   // null: not mapped
  bool registered_ = false;
  std::byte* device_ = nullptr;
};

}  // namespace arraybridge

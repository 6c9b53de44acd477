// SPDX-License-Identifier: Apache-2.0
// A FakeBackend is memory without bytes. A test sets whether a producer still maps a block, whether a process holds it,
// and which step fails. The backend counts its live blocks.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/memory/memory_backend.h"

namespace arraybridge::daemon {

// Shared by all blocks of one backend. Atomic, because the thread test uses it.
struct FakeWorld {
  std::atomic<uint64_t> allocated{0};
  std::atomic<bool> mapped_writable{false};  // the final seal is refused
  std::atomic<bool> held{false};             // HeldElsewhere
  std::atomic<bool> allocate_fails{false};
  std::atomic<bool> machine_is_full{false};  // other processes use all memory
  std::atomic<bool> export_fails{false};
  std::atomic<bool> seal_fails{false};
  std::atomic<uint64_t> exports{0};
  std::atomic<uint64_t> allocations{0};  // requested, granted or not
  std::atomic<uint64_t> final_seals{0};  // attempts
  std::atomic<uint64_t> hazard_checks{0};
  std::function<void()> on_final_seal;
  std::function<void(uint64_t size)> on_allocate;
};

class FakeBlock final : public MemoryBlock {
 public:
  FakeBlock(std::shared_ptr<FakeWorld> world, uint64_t size) : world_(std::move(world)), size_(size) {}
  ~FakeBlock() override { world_->allocated -= size_; }

  uint64_t size() const override { return size_; }
  Result<Handle> Export(Access access) const override {
    if (world_->export_fails) return ResourceExhausted("no descriptors").Because("DESCRIPTORS");
    if (access == Access::kWrite && seals_ > 0) return FailedPrecondition("sealed");
    ++world_->exports;
    Handle handle;
    handle.descriptor = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return handle;
  }
  Result<Immutability> Seal() override {
    if (world_->seal_fails) return FailedPrecondition("cannot be sealed");
    if (seals_ == 0) {
      seals_ = 1;
      return Immutability::kByContract;
    }
    ++world_->final_seals;
    if (world_->on_final_seal) world_->on_final_seal();
    if (seals_ == 1 && world_->mapped_writable) return Immutability::kByContract;
    seals_ = 2;
    return Immutability::kEnforced;
  }
  bool HeldElsewhere() const override {
    ++world_->hazard_checks;
    return world_->held;
  }

 private:
  const std::shared_ptr<FakeWorld> world_;
  const uint64_t size_;
  std::atomic<int> seals_{0};
};

class FakeBackend final : public MemoryBackend {
 public:
  explicit FakeBackend(uint64_t capacity) : capacity_(capacity) {}

  HandleKind kind() const override { return HandleKind::kMemfd; }
  std::vector<Device> devices() const override { return {Device{kDeviceCpu, 0, {}}}; }
  uint64_t Footprint(const Device&, uint64_t size) const override {
    return size > UINT64_MAX - 4095 ? 0 : (size + 4095) / 4096 * 4096;
  }
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    ++world->allocations;
    const uint64_t footprint = Footprint(device, size);
    if (world->machine_is_full) {
      return ResourceExhausted("the driver: CUDA_ERROR_OUT_OF_MEMORY (2): ", footprint, " bytes")
          .Because("CUDA_ERROR_OUT_OF_MEMORY");
    }
    if (world->allocate_fails || world->allocated + footprint > capacity_) {
      return ResourceExhausted("full").Because("DEVICE_FULL");
    }
    world->allocated += footprint;
    if (world->on_allocate) world->on_allocate(size);
    return std::unique_ptr<MemoryBlock>(std::make_unique<FakeBlock>(world, footprint));
  }
  Usage usage(const Device&) const override { return {capacity_, world->allocated, 0}; }
  uint64_t Trim() override { return 0; }

  const std::shared_ptr<FakeWorld> world = std::make_shared<FakeWorld>();

 private:
  const uint64_t capacity_;
};

}  // namespace arraybridge::daemon

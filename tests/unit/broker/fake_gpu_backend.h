// SPDX-License-Identifier: Apache-2.0
// GPU memory without a GPU, for tests that do not access its bytes.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/memory/memory_backend.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

inline const Device kGpu{kDeviceCuda, 0, "GPU-1"};
inline constexpr uint64_t kPageOfGpu = 4096;

// GPU memory without bytes: `opaque` handles, or descriptors.
class FakeGpuBlock final : public MemoryBlock {
 public:
  FakeGpuBlock(HandleKind kind, uint64_t size, uint64_t* living) : kind_(kind), size_(size), living_(living) {
    ++*living_;
  }
  ~FakeGpuBlock() override { --*living_; }
  uint64_t size() const override { return size_; }
  Result<Handle> Export(Access) const override {
    Handle handle;
    if (kind_ == HandleKind::kCudaIpc) {
      handle.opaque = std::string(64, 's');
    } else {
      handle.descriptor = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    return handle;
  }
  Result<Immutability> Seal() override { return Immutability::kByContract; }
  bool HeldElsewhere() const override { return false; }
  bool KnowsHolders() const override { return false; }
  bool MayBeEnforced() const override { return false; }

 private:
  const HandleKind kind_;
  const uint64_t size_;
  uint64_t* const living_;
};

class FakeGpuBackend final : public MemoryBackend {
 public:
  explicit FakeGpuBackend(HandleKind kind) : kind_(kind) {}
  HandleKind kind() const override { return kind_; }
  std::vector<Device> devices() const override { return {kGpu}; }
  uint64_t Footprint(const Device&, uint64_t size) const override {
    return (size + kPageOfGpu - 1) / kPageOfGpu * kPageOfGpu;
  }
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    return std::unique_ptr<MemoryBlock>(std::make_unique<FakeGpuBlock>(kind_, Footprint(device, size), &living));
  }
  Usage usage(const Device&) const override { return {1024 * kPageOfGpu, 0, 0}; }
  uint64_t Trim() override { return 0; }

  uint64_t living = 0;

 private:
  const HandleKind kind_;
};

}  // namespace arraybridge::daemon

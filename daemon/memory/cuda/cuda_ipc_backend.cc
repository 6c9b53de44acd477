// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/cuda/cuda_ipc_backend.h"

#include <utility>

#include "daemon/memory/cuda/cuda_backend.h"
#include "proto/boundary/cuda/driver_own_memory.h"

namespace arraybridge::daemon {
namespace {

// Smaller blocks would share a page with other allocations, and a process that opens a handle maps the whole page.
constexpr uint64_t kUnit = 2ull << 20;

// Memory from cuMemAlloc. It is shared with clients in this process, which cannot open a handle of their own process.
class Allocation {
 public:
  Allocation(std::shared_ptr<CudaGpu> gpu, cuda::CUdeviceptr address) : gpu_(std::move(gpu)), address_(address) {}
  // A GPU that is out of service cannot free memory; the driver frees it when this process exits.
  ~Allocation() {
    if (gpu_->LeftToTheDriver()) return;
    if (const auto inside = gpu_->PushContext(); inside.ok()) gpu_->driver().MemFree(address_);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  cuda::CUdeviceptr address() const { return address_; }

 private:
  const std::shared_ptr<CudaGpu> gpu_;
  const cuda::CUdeviceptr address_;
};

class IpcBlock final : public CudaBlock {
 public:
  IpcBlock(std::shared_ptr<CudaGpu> on, Reservation reservation, uint64_t size,
           std::shared_ptr<const Allocation> memory)
      : CudaBlock(std::move(on), std::move(reservation), size), memory_(std::move(memory)) {}

  // Exports the whole block. The 64 bytes grant full access, so they are a secret.
  Result<Handle> Export(Access) const override {
    AB_ASSIGN_OR_RETURN(const auto inside, gpu().PushContext());
    cuda::CUipcMemHandle bytes{};
    const auto got = gpu().driver().IpcGetMemHandle(&bytes, memory_->address());
    AB_RETURN_IF_ERROR(gpu().Note(gpu().driver().Check(got, "cuIpcGetMemHandle", size(), " bytes")));
    Handle handle = Described(HandleKind::kCudaIpc);
    handle.opaque.assign(reinterpret_cast<const char*>(bytes.reserved), sizeof bytes.reserved);
    cuda::OwnMemory::Announce(handle.opaque, memory_->address(), size(), memory_);
    return handle;
  }

  Status Clear() const override {
    AB_ASSIGN_OR_RETURN(const auto inside, gpu().PushContext());
    return gpu().Zero(memory_->address(), size());
  }

 private:
  const std::shared_ptr<const Allocation> memory_;
};

class IpcBackend final : public CudaBackend {
 public:
  using CudaBackend::CudaBackend;

  HandleKind kind() const override { return HandleKind::kCudaIpc; }

 private:
  uint64_t UnitOf(const CudaGpu& /*gpu*/) const override { return kUnit; }
  Result<std::unique_ptr<CudaBlock>> Create(const std::shared_ptr<CudaGpu>& gpu, Reservation reservation,
                                            uint64_t footprint) override {
    AB_ASSIGN_OR_RETURN(const auto inside, gpu->PushContext());
    cuda::CUdeviceptr address = 0;
    const auto allocated = gpu->driver().MemAlloc(&address, footprint);
    AB_RETURN_IF_ERROR(gpu->Note(gpu->driver().Check(allocated, "cuMemAlloc", footprint, " bytes")));
    auto memory = std::make_shared<const Allocation>(gpu, address);
    return std::unique_ptr<CudaBlock>(
        std::make_unique<IpcBlock>(gpu, std::move(reservation), footprint, std::move(memory)));
  }
};

}  // namespace

std::unique_ptr<MemoryBackend> MakeCudaIpcBackend(std::vector<std::shared_ptr<CudaGpu>> gpus) {
  return std::make_unique<IpcBackend>(std::move(gpus), &CudaGpu::Refusals::ipc);
}

}  // namespace arraybridge::daemon

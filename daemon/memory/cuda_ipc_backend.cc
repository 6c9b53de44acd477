#include "daemon/memory/cuda_ipc_backend.h"

#include <utility>

#include "daemon/memory/cuda_backend.h"

namespace arraybridge {
namespace {

// Smaller blocks share a page with their neighbours, and whoever opens one has them all.
constexpr uint64_t kUnit = 2ull << 20;

class IpcBlock final : public CudaBlock {
 public:
  IpcBlock(std::shared_ptr<CudaGpu> on, Reservation reservation, uint64_t size, cuda::CUdeviceptr address)
      : CudaBlock(std::move(on), std::move(reservation), size), address_(address) {}
  // A GPU that is out of service takes nothing back; its memory goes with this process.
  ~IpcBlock() override {
    if (const auto inside = gpu().Enter(); inside.ok()) gpu().driver().MemFree(address_);
  }
  IpcBlock(const IpcBlock&) = delete;
  IpcBlock& operator=(const IpcBlock&) = delete;

  // Of the whole block. The 64 bytes are full rights: a secret.
  Result<Handle> Export(Access) const override {
    const auto inside = gpu().Enter();
    if (!inside.ok()) return inside.status();
    cuda::CUipcMemHandle bytes{};
    const auto got = gpu().driver().IpcGetMemHandle(&bytes, address_);
    AB_RETURN_IF_ERROR(gpu().Note(gpu().driver().Check(got, "cuIpcGetMemHandle", size(), " bytes")));
    Handle handle = Described(HandleKind::kCudaIpc);
    handle.opaque.assign(reinterpret_cast<const char*>(bytes.reserved), sizeof bytes.reserved);
    return handle;
  }

  // New device memory may hold what others left in it.
  Status Clear() const {
    const auto inside = gpu().Enter();
    if (!inside.ok()) return inside.status();
    return gpu().Zero(address_, size());
  }

 private:
  const cuda::CUdeviceptr address_;
};

class IpcBackend final : public CudaBackend {
 public:
  using CudaBackend::CudaBackend;

  HandleKind kind() const override { return HandleKind::kCudaIpc; }
  uint64_t Footprint(const Device& device, uint64_t size) const override {
    return Find(device) == nullptr ? 0 : RoundUp(size, kUnit);
  }
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    const auto gpu = Find(device);
    if (gpu == nullptr) return InvalidArgument("no such device: ", device.uuid);
    const uint64_t footprint = Footprint(device, size);
    auto reservation = Reserve(*gpu, footprint);
    if (!reservation.ok()) return reservation.status();
    cuda::CUdeviceptr address = 0;
    {
      const auto inside = gpu->Enter();
      if (!inside.ok()) return inside.status();
      const auto allocated = gpu->driver().MemAlloc(&address, footprint);
      AB_RETURN_IF_ERROR(gpu->Note(gpu->driver().Check(allocated, "cuMemAlloc", footprint, " bytes")));
    }
    auto block = std::make_unique<IpcBlock>(gpu, *std::move(reservation), footprint, address);
    AB_RETURN_IF_ERROR(block->Clear());
    return std::unique_ptr<MemoryBlock>(std::move(block));
  }
};

}  // namespace

std::unique_ptr<MemoryBackend> MakeCudaIpcBackend(std::vector<std::shared_ptr<CudaGpu>> gpus) {
  return std::make_unique<IpcBackend>(std::move(gpus), &CudaGpu::Refusals::ipc);
}

}  // namespace arraybridge

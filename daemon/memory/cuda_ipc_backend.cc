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

  Status Clear() const override {
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

 private:
  uint64_t UnitOf(const CudaGpu& /*gpu*/) const override { return kUnit; }
  Result<std::unique_ptr<CudaBlock>> Create(const std::shared_ptr<CudaGpu>& gpu, Reservation reservation,
                                            uint64_t footprint) override {
    const auto inside = gpu->Enter();
    if (!inside.ok()) return inside.status();
    cuda::CUdeviceptr address = 0;
    const auto allocated = gpu->driver().MemAlloc(&address, footprint);
    AB_RETURN_IF_ERROR(gpu->Note(gpu->driver().Check(allocated, "cuMemAlloc", footprint, " bytes")));
    return std::unique_ptr<CudaBlock>(std::make_unique<IpcBlock>(gpu, std::move(reservation), footprint, address));
  }
};

}  // namespace

std::unique_ptr<MemoryBackend> MakeCudaIpcBackend(std::vector<std::shared_ptr<CudaGpu>> gpus) {
  return std::make_unique<IpcBackend>(std::move(gpus), &CudaGpu::Refusals::ipc);
}

}  // namespace arraybridge

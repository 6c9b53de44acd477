// SPDX-License-Identifier: Apache-2.0
#include "client/windows/cuda_window.h"

#include <utility>

#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/cuda/cuda_vmm_mapper.h"
#include "client/memory/fence_event.h"

namespace arraybridge {
namespace {

using cuda::CUdeviceptr;
using cuda::CUmemGenericAllocationHandle;
using cuda::Driver;

// An arena that is imported once more, and the lease under which it is read. The mapping of the lease was checked.
class ImportedArena {
 public:
  static Result<std::unique_ptr<ImportedArena>> Of(const CudaDevices& devices, const LeasedSlab& slab) {
    const Driver& driver = devices.driver();
    const Handle& handle = slab.lease->arena->handle;
    const auto descriptor = static_cast<uintptr_t>(handle.descriptor.get());
    CUmemGenericAllocationHandle arena = 0;
    AB_RETURN_IF_ERROR(
        driver.CheckInput(driver.MemImportFromShareableHandle(&arena, reinterpret_cast<void*>(descriptor),
                                                              cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                          "cuMemImportFromShareableHandle", handle.arena_size, " bytes"));
    return std::unique_ptr<ImportedArena>(new ImportedArena(devices, slab.view.device.id, arena, slab.lease));
  }
  // The driver keeps the memory of an import that is still mapped.
  ~ImportedArena() {
    const auto inside = devices_.Enter(ordinal_);
    if (inside.ok()) devices_.driver().MemRelease(arena_);
  }
  ImportedArena(const ImportedArena&) = delete;
  ImportedArena& operator=(const ImportedArena&) = delete;

  CUmemGenericAllocationHandle get() const { return arena_; }
  // Waits for the work that this process has queued on the GPU.
  Status Drain() const { return lease_->arena->shared->Drain(); }

 private:
  ImportedArena(const CudaDevices& devices, int32_t ordinal, CUmemGenericAllocationHandle arena,
                std::shared_ptr<const Lease> lease)
      : devices_(devices), ordinal_(ordinal), arena_(arena), lease_(std::move(lease)) {}

  const CudaDevices& devices_;
  const int32_t ordinal_;
  const CUmemGenericAllocationHandle arena_;
  const std::shared_ptr<const Lease> lease_;
};

class GpuWindow final : public WindowMemory {
 public:
  GpuWindow(const CudaDevices& devices, Device device, CUdeviceptr base, uint64_t bytes, uint64_t offset)
      : devices_(devices), device_(std::move(device)), base_(base), bytes_(bytes), offset_(offset) {}
  ~GpuWindow() override {
    // Fails in a forked child, where the mapping belongs to the parent.
    const auto inside = devices_.Enter(device_.id);
    if (!inside.ok() || (live_ && (!live_->Drain().ok() || !Unmap().ok()))) return;
    devices_.driver().MemAddressFree(base_, bytes_);
  }

  const std::byte* slab() const override { return reinterpret_cast<const std::byte*>(base_ + offset_); }

  Result<SwapWindow::How> Prepare(const LeasedSlab& next) override {
    const Handle& arena = next.lease->arena->handle;
    if (arena.kind != HandleKind::kCudaVmm || next.view.device.id != device_.id || arena.arena_size != bytes_ ||
        next.offset != offset_) {
      return FailedPrecondition("the next generation lies at another place of a GPU's memory").Because("OTHER_LAYOUT");
    }
    if (next.view.fence != nullptr) AB_RETURN_IF_ERROR(next.view.fence->Wait());
    AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(device_.id));
    AB_ASSIGN_OR_RETURN(prepared_, ImportedArena::Of(devices_, next));
    return SwapWindow::How::kMapped;
  }

  Status Move() override {
    AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(device_.id));
    if (live_ != nullptr) {
      AB_RETURN_IF_ERROR(live_->Drain());
      AB_RETURN_IF_ERROR(Unmap());
    }
    Status mapped = Map(*prepared_);
    if (!mapped.ok()) {
      if (live_ == nullptr || Map(*live_).ok()) return mapped;
      return Internal("the GPU's driver maps neither the next generation nor the last one: ", mapped.message());
    }
    retired_ = std::exchange(live_, std::move(prepared_));
    return Ok();
  }

  Status Clear() override {
    retired_.reset();
    prepared_.reset();
    return Ok();
  }

 private:
  Status Map(const ImportedArena& arena) {
    const Driver& driver = devices_.driver();
    AB_RETURN_IF_ERROR(
        driver.CheckInput(driver.MemMap(base_, bytes_, 0, arena.get(), 0), "cuMemMap", bytes_, " bytes"));
    Status allowed = AllowAccess(devices_, device_.id, base_, bytes_, Access::kRead);
    if (!allowed.ok()) static_cast<void>(Unmap());
    return allowed;
  }
  Status Unmap() {
    const Driver& driver = devices_.driver();
    return driver.CheckInput(driver.MemUnmap(base_, bytes_), "cuMemUnmap", bytes_, " bytes");
  }

  const CudaDevices& devices_;
  const Device device_;
  const CUdeviceptr base_;
  const uint64_t bytes_;   // of an arena
  const uint64_t offset_;  // of the slab, in its arena
  std::unique_ptr<ImportedArena> live_;
  std::unique_ptr<ImportedArena> prepared_;
  std::unique_ptr<ImportedArena> retired_;
};

}  // namespace

Result<std::unique_ptr<WindowMemory>> GpuWindowFor(const LeasedSlab& first) {
  const Handle& arena = first.lease->arena->handle;
  if (arena.kind != HandleKind::kCudaVmm) {
    return Unimplemented("the bundle's memory has a cudaIpcMemHandle, which is mapped where the driver wants")
        .Because("NOT_HOST_MEMORY");
  }
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto inside, devices->Enter(first.view.device.id));
  const Driver& driver = devices->driver();
  CUdeviceptr base = 0;
  AB_RETURN_IF_ERROR(driver.CheckInput(driver.MemAddressReserve(&base, arena.arena_size, 0, 0, 0),
                                       "cuMemAddressReserve", arena.arena_size, " bytes"));
  return std::unique_ptr<WindowMemory>(
      std::make_unique<GpuWindow>(*devices, first.view.device, base, arena.arena_size, first.offset));
}

}  // namespace arraybridge

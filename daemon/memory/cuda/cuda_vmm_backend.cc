// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/cuda/cuda_vmm_backend.h"

#include <fcntl.h>

#include <utility>

#include "daemon/memory/cuda/cuda_backend.h"

namespace arraybridge::daemon {
namespace {

using cuda::CUdeviceptr;
using cuda::CUmemGenericAllocationHandle;

class VmmBlock final : public CudaBlock {
 public:
  VmmBlock(std::shared_ptr<CudaGpu> on, Reservation reservation, uint64_t size, CUmemGenericAllocationHandle memory)
      : CudaBlock(std::move(on), std::move(reservation), size), memory_(memory) {}
  // Before the block is used.
  void Keep(UniqueFd descriptor) { keep_ = std::move(descriptor); }
  int descriptor() const override { return keep_.get(); }
  ~VmmBlock() override { gpu().driver().MemRelease(memory_); }
  VmmBlock(const VmmBlock&) = delete;
  VmmBlock& operator=(const VmmBlock&) = delete;

  // The descriptor carries no access rights: a read-only borrower keeps to reading by convention.
  Result<Handle> Export(Access) const override {
    AB_ASSIGN_OR_RETURN(const auto inside, gpu().PushContext());
    int fd = -1;
    const auto exported =
        gpu().driver().MemExportToShareableHandle(&fd, memory_, cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    AB_RETURN_IF_ERROR(gpu().Note(gpu().driver().Check(exported, "cuMemExportToShareableHandle", size(), " bytes")));
    Handle handle = Described(HandleKind::kCudaVmm);
    handle.descriptor = UniqueFd(fd);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return handle;
  }

  Status Clear() const override;

 private:
  const CUmemGenericAllocationHandle memory_;
  UniqueFd keep_;  // keeps the memory as a handle does
};

// A mapping that exists only while the block is cleared: the daemon does not read clients' arrays.
class PassingMap {
 public:
  PassingMap(const cuda::Driver& driver, uint64_t bytes) : driver_(driver), bytes_(bytes) {}
  ~PassingMap() {
    if (mapped_) driver_.MemUnmap(address_, bytes_);
    if (address_ != 0) driver_.MemAddressFree(address_, bytes_);
  }
  PassingMap(const PassingMap&) = delete;
  PassingMap& operator=(const PassingMap&) = delete;

  Status Map(CUmemGenericAllocationHandle memory, cuda::CUdevice ordinal) {
    AB_RETURN_IF_ERROR(driver_.Check(driver_.MemAddressReserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve"));
    AB_RETURN_IF_ERROR(driver_.Check(driver_.MemMap(address_, bytes_, 0, memory, 0), "cuMemMap"));
    mapped_ = true;
    cuda::CUmemAccessDesc access{};
    access.location = {cuda::CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    access.flags = cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver_.Check(driver_.MemSetAccess(address_, bytes_, &access, 1), "cuMemSetAccess");
  }
  CUdeviceptr address() const { return address_; }

 private:
  const cuda::Driver& driver_;
  const uint64_t bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

Status VmmBlock::Clear() const {
  AB_ASSIGN_OR_RETURN(const auto inside, gpu().PushContext());
  PassingMap map(gpu().driver(), size());
  AB_RETURN_IF_ERROR(gpu().Note(map.Map(memory_, gpu().ordinal())));
  return gpu().Zero(map.address(), size());
}

class VmmBackend final : public CudaBackend {
 public:
  using CudaBackend::CudaBackend;

  HandleKind kind() const override { return HandleKind::kCudaVmm; }
  // The driver refuses a descriptor that is no memory, and has no query for its size.
  Result<std::unique_ptr<MemoryBlock>> Adopt(const Device& device, uint64_t size, UniqueFd descriptor) override {
    const auto gpu = Find(device);
    if (gpu == nullptr) return FailedPrecondition("its device is not served any more");
    AB_ASSIGN_OR_RETURN(const auto inside, gpu->PushContext());
    if (size == 0 || size % gpu->granularity() != 0) return FailedPrecondition("its size is not one of GPU memory");
    AB_RETURN_IF_ERROR(gpu->capacity()->Reserve(size));
    Reservation reservation(gpu->capacity(), size);
    CUmemGenericAllocationHandle memory = 0;
    const auto number = static_cast<uintptr_t>(descriptor.get());
    const auto imported = gpu->driver().MemImportFromShareableHandle(&memory, reinterpret_cast<void*>(number),
                                                                     cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    // An input that another process made says nothing about the GPU.
    AB_RETURN_IF_ERROR(gpu->driver().CheckInput(imported, "cuMemImportFromShareableHandle", size, " bytes"));
    auto block = std::make_unique<VmmBlock>(gpu, std::move(reservation), size, memory);
    block->Keep(std::move(descriptor));
    return std::unique_ptr<MemoryBlock>(std::move(block));
  }

 private:
  uint64_t UnitOf(const CudaGpu& gpu) const override { return gpu.granularity(); }
  Result<std::unique_ptr<CudaBlock>> Create(const std::shared_ptr<CudaGpu>& gpu, Reservation reservation,
                                            uint64_t footprint) override {
    AB_ASSIGN_OR_RETURN(const auto inside, gpu->PushContext());
    const cuda::CUmemAllocationProp properties = CudaGpu::ShareableMemoryOf(gpu->ordinal());
    CUmemGenericAllocationHandle memory = 0;
    const auto created = gpu->driver().MemCreate(&memory, footprint, &properties, 0);
    AB_RETURN_IF_ERROR(gpu->Note(gpu->driver().Check(created, "cuMemCreate", footprint, " bytes")));
    auto block = std::make_unique<VmmBlock>(gpu, std::move(reservation), footprint, memory);
    AB_ASSIGN_OR_RETURN(auto exported, block->Export(Access::kWrite));
    block->Keep(std::move(exported.descriptor));
    return std::unique_ptr<CudaBlock>(std::move(block));
  }
};

}  // namespace

std::unique_ptr<MemoryBackend> MakeCudaVmmBackend(std::vector<std::shared_ptr<CudaGpu>> gpus) {
  return std::make_unique<VmmBackend>(std::move(gpus), &CudaGpu::Refusals::vmm);
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// Imports the allocation, checks it, reserves addresses of exactly its size, maps it, sets access, and releases the
// import: the mapping keeps the memory. Handles are untrusted, as the memfds of the host are: the checks or the driver
// refuse a wrong device or size, and after an error all steps are undone.
#include "client/memory/cuda/cuda_vmm_mapper.h"

#include <atomic>
#include <utility>
#include <vector>

#include "client/memory/cuda/cuda_mapper.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::Driver;

namespace {

std::atomic<uint64_t> maps_that_readers_may_write = 0;

// An imported allocation, until it is mapped.
class Import {
 public:
  Import(const Driver& driver, const Handle& handle) : driver_(driver) {
    const auto descriptor = static_cast<uintptr_t>(handle.descriptor.get());
    status_ = driver.CheckInput(driver.MemImportFromShareableHandle(&imported_, reinterpret_cast<void*>(descriptor),
                                                                    cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                "cuMemImportFromShareableHandle", handle.arena_size, " bytes");
  }
  ~Import() {
    if (status_.ok()) driver_.MemRelease(imported_);
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  const Status& status() const { return status_; }
  cuda::CUmemGenericAllocationHandle get() const { return imported_; }

  // Checks that the allocation lies on this GPU and can be passed as a descriptor.
  Status Check(const Device& device) const {
    cuda::CUmemAllocationProp properties{};
    AB_RETURN_IF_ERROR(driver_.CheckInput(driver_.MemGetAllocationPropertiesFromHandle(&properties, imported_),
                                          "cuMemGetAllocationPropertiesFromHandle"));
    const bool of_device = properties.type == cuda::CU_MEM_ALLOCATION_TYPE_PINNED &&
                           properties.location.type == cuda::CU_MEM_LOCATION_TYPE_DEVICE;
    if (!of_device) return FailedPrecondition("the memory is not on a GPU");
    if (properties.location.id != device.id) {
      return FailedPrecondition("the memory lies on GPU ", properties.location.id, " of this process, not on ",
                                device.uuid, " (GPU ", device.id, ")");
    }
    if ((properties.requestedHandleTypes & cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
      return FailedPrecondition("the memory cannot be passed as a descriptor");
    }
    return Ok();
  }

 private:
  const Driver& driver_;
  cuda::CUmemGenericAllocationHandle imported_ = 0;
  Status status_;
};

// A reserved range of addresses and its mapping. REQUIRES: no work uses it when it is destroyed.
class VmmMemory {
 public:
  VmmMemory(const CudaDevices& devices, int32_t ordinal, uint64_t bytes)
      : devices_(devices), ordinal_(ordinal), bytes_(bytes) {}
  ~VmmMemory() {
    if (address_ == 0) return;
    // Fails in a forked child, where the mapping belongs to the parent.
    const auto inside = devices_.Enter(ordinal_);
    if (!inside.ok()) return;
    const Driver& driver = devices_.driver();
    if (mapped_ && driver.MemUnmap(address_, bytes_) != cuda::CUDA_SUCCESS) return;
    driver.MemAddressFree(address_, bytes_);
  }
  VmmMemory(const VmmMemory&) = delete;
  VmmMemory& operator=(const VmmMemory&) = delete;

  CUdeviceptr address() const { return address_; }

  Status Map(const Import& import, Access access) {
    const Driver& driver = devices_.driver();
    AB_RETURN_IF_ERROR(driver.CheckInput(driver.MemAddressReserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve",
                                         bytes_, " bytes"));
    AB_RETURN_IF_ERROR(
        driver.CheckInput(driver.MemMap(address_, bytes_, 0, import.get(), 0), "cuMemMap", bytes_, " bytes"));
    mapped_ = true;
    AB_RETURN_IF_ERROR(AllowAccess(devices_, ordinal_, address_, bytes_, access));
    CUdeviceptr base = 0;
    size_t size = 0;
    AB_RETURN_IF_ERROR(driver.CheckInput(driver.MemGetAddressRange(&base, &size, address_), "cuMemGetAddressRange"));
    if (base == address_ && size == bytes_) return Ok();
    return FailedPrecondition("the memory has ", size, " bytes, its handle says ", bytes_);
  }

 private:
  const CudaDevices& devices_;
  const int32_t ordinal_;
  const uint64_t bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

class CudaVmmMapper final : public CudaMapper {
 public:
  using CudaMapper::CudaMapper;

  HandleKind kind() const override { return HandleKind::kCudaVmm; }

 private:
  Status CheckHandle(const Handle& handle) const override {
    if (handle.kind != kind()) return Unimplemented("the handle is not of kind cuda_vmm");
    if (handle.descriptor.valid()) return Ok();
    return FailedPrecondition("arena ", handle.arena, " came without a descriptor");
  }

  Result<Opened> Open(const CudaDevices& devices, const Device& device, const Handle& handle, Access access) override {
    AB_ASSIGN_OR_RETURN(const auto inside, devices.Enter(device.id));
    const Import import(devices.driver(), handle);
    AB_RETURN_IF_ERROR(import.status());
    AB_RETURN_IF_ERROR(import.Check(device));
    auto memory = std::make_shared<VmmMemory>(devices, device.id, handle.arena_size);
    AB_RETURN_IF_ERROR(memory->Map(import, access));
    return Opened{memory, memory->address()};
  }
};

}  // namespace

Status AllowAccess(const CudaDevices& devices, int32_t ordinal, CUdeviceptr address, uint64_t bytes, Access access) {
  const auto allow = [&](const std::vector<int32_t>& gpus, cuda::CUmemAccess_flags flags) {
    std::vector<cuda::CUmemAccessDesc> rights;
    rights.reserve(gpus.size());
    for (const int32_t gpu : gpus) rights.push_back({{cuda::CU_MEM_LOCATION_TYPE_DEVICE, gpu}, flags});
    return devices.driver().CheckInput(devices.driver().MemSetAccess(address, bytes, rights.data(), rights.size()),
                                       "cuMemSetAccess", bytes, " bytes");
  };
  const auto wanted =
      access == Access::kWrite ? cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE : cuda::CU_MEM_ACCESS_FLAGS_PROT_READ;
  // A copy between GPUs is executed by one of them, which needs access to both ends.
  const std::vector<int32_t> who = devices.WhoReach(ordinal);
  Status allowed = allow(who, wanted);
  if (!allowed.ok() && who.size() > 1) {
    devices.ForgetPeers();
    allowed = allow({ordinal}, wanted);
  }
  // A driver may know no read-only access to GPU memory. The descriptor permits more in any case.
  const bool unknown = allowed.code() == Code::kInvalidArgument || allowed.code() == Code::kUnimplemented;
  if (access == Access::kRead && unknown) {
    allowed = allow({ordinal}, cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (allowed.ok()) ++maps_that_readers_may_write;
  }
  return allowed;
}

uint64_t MapsThatReadersMayWrite() { return maps_that_readers_may_write; }

std::unique_ptr<MemoryMapper> MakeCudaVmmMapper(std::string library) {
  return std::make_unique<CudaVmmMapper>(std::move(library));
}

}  // namespace arraybridge

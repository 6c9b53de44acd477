// SPDX-License-Identifier: Apache-2.0
// A process opens each block once: a second opening of the same handle returns the address of the first at best. So the
// openings of this process are found by their 64-byte handles and shared by all mappings of the block. A handle is
// never used again after its block is freed.
#include "client/memory/cuda/cuda_ipc_mapper.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "client/memory/cuda/cuda_mapper.h"
#include "client/memory/cuda/cuda_openings.h"
#include "proto/boundary/cuda/driver_own_memory.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::CUipcMemHandle;
using cuda::Driver;

namespace {

// One opened block. REQUIRES: no work uses it when it is destroyed.
class IpcMemory {
 public:
  static Result<std::unique_ptr<IpcMemory>> Open(const CudaDevices& devices, int32_t ordinal, const std::string& opaque,
                                                 uint64_t bytes) {
    AB_ASSIGN_OR_RETURN(const auto inside, devices.Enter(ordinal));
    const Driver& driver = devices.driver();
    CUipcMemHandle handle{};
    std::memcpy(&handle, opaque.data(), sizeof handle);
    std::unique_ptr<IpcMemory> memory(new IpcMemory(devices, ordinal));
    AB_RETURN_IF_ERROR(
        driver.CheckInput(driver.IpcOpenMemHandle(&memory->address_, handle, cuda::kIpcMemLazyEnablePeerAccess),
                          "cuIpcOpenMemHandle", bytes, " bytes, of another process of this PID namespace"));
    return memory;
  }
  ~IpcMemory() {
    if (address_ == 0) return;
    const auto inside = devices_.Enter(ordinal_);
    if (inside.ok()) devices_.driver().IpcCloseMemHandle(address_);
  }
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  CUdeviceptr address() const { return address_; }

  // The block must begin at the opened address and have the size that its owner states.
  Status CheckRange(uint64_t bytes) const {
    AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(ordinal_));
    const Driver& driver = devices_.driver();
    CUdeviceptr base = 0;
    size_t size = 0;
    AB_RETURN_IF_ERROR(driver.CheckInput(driver.MemGetAddressRange(&base, &size, address_), "cuMemGetAddressRange"));
    if (base == address_ && size >= bytes) return Ok();
    return FailedPrecondition("the memory has ", size, " bytes, its handle says ", bytes);
  }

 private:
  IpcMemory(const CudaDevices& devices, int32_t ordinal) : devices_(devices), ordinal_(ordinal) {}

  const CudaDevices& devices_;
  const int32_t ordinal_;
  CUdeviceptr address_ = 0;
};

// Memory of a daemon in this very process, which is shared instead of opened.
class OwnIpcMemory {
 public:
  explicit OwnIpcMemory(std::shared_ptr<const void> holder) : holder_(std::move(holder)) {}
  ~OwnIpcMemory() {
    // In a forked child the memory belongs to the parent.
    if (CudaDevices::IfUsed() == nullptr) new std::shared_ptr<const void>(std::move(holder_));
  }
  OwnIpcMemory(const OwnIpcMemory&) = delete;
  OwnIpcMemory& operator=(const OwnIpcMemory&) = delete;

 private:
  std::shared_ptr<const void> holder_;
};

CudaOpenings<IpcMemory>& MemoryOpenings() {
  static auto* const openings = new CudaOpenings<IpcMemory>;
  return *openings;
}

class CudaIpcMapper final : public CudaMapper {
 public:
  using CudaMapper::CudaMapper;

  HandleKind kind() const override { return HandleKind::kCudaIpc; }

 private:
  Status CheckHandle(const Handle& handle) const override {
    if (handle.kind != kind()) return Unimplemented("the handle is not a cudaIpcMemHandle");
    if (handle.opaque.size() == sizeof(CUipcMemHandle)) return Ok();
    return FailedPrecondition("arena ", handle.arena, " came with ", handle.opaque.size(),
                              " bytes where a cudaIpcMemHandle has ", sizeof(CUipcMemHandle));
  }

  Result<Opened> Open(const CudaDevices& devices, const Device& device, const Handle& handle,
                      Access /*access*/) override {
    if (auto own = cuda::OwnMemory::Find(handle.opaque); own.holder != nullptr) {
      if (own.bytes < handle.arena_size) {
        return FailedPrecondition("the memory has ", own.bytes, " bytes, its handle says ", handle.arena_size);
      }
      return Opened{std::make_shared<const OwnIpcMemory>(std::move(own.holder)), own.address};
    }
    auto memory = MemoryOpenings().Get(
        handle.opaque, [&] { return IpcMemory::Open(devices, device.id, handle.opaque, handle.arena_size); });
    if (!memory.ok()) return memory.status();
    AB_RETURN_IF_ERROR((*memory)->CheckRange(handle.arena_size));
    return Opened{*memory, (*memory)->address()};
  }
};

}  // namespace

std::unique_ptr<MemoryMapper> MakeCudaIpcMapper(std::string library) {
  return std::make_unique<CudaIpcMapper>(std::move(library));
}

}  // namespace arraybridge

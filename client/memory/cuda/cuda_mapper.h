// SPDX-License-Identifier: Apache-2.0
// The common part of both mappers of GPU memory: checks of the handle, the device, and the attribution of errors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/cuda/cuda_mapping.h"

namespace arraybridge {

class CudaMapper : public MemoryMapper {
 public:
  explicit CudaMapper(std::string library) : library_(std::move(library)) {}

  Result<Device> Local(const Device& device) const override { return CudaDevices::Local(device, library_); }

  Result<std::unique_ptr<Mapping>> Map(const Handle& handle, const Device& device, Access access) override {
    AB_RETURN_IF_ERROR(CheckHandle(handle));
    if (handle.arena_size == 0) return FailedPrecondition("arena ", handle.arena, " has no bytes");
    AB_ASSIGN_OR_RETURN(auto local, Local(device));
    AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess(library_));
    auto opened = Open(*devices, local, handle, access);
    // If the driver refuses a value of the handle, the handle is wrong.
    if (!opened.ok() && opened.status().code() == Code::kInvalidArgument) {
      return FailedPrecondition("arena ", handle.arena, " is not what its handle says: ", opened.status().message());
    }
    if (!opened.ok()) return opened.status();
    auto* const data = reinterpret_cast<std::byte*>(opened->address);
    return std::unique_ptr<Mapping>(
        std::make_unique<CudaMapping>(*devices, std::move(opened->memory), data, handle.arena_size, std::move(local)));
  }

  Result<std::unique_ptr<Mapping>> MapPrivate(const Handle& /*arena*/, uint64_t /*offset*/,
                                              uint64_t /*size*/) override {
    return Unimplemented("GPU memory cannot be mapped copy-on-write");
  }

 protected:
  struct Opened {
    std::shared_ptr<const void> memory;  // unmaps when it is destroyed
    cuda::CUdeviceptr address = 0;
  };

 private:
  virtual Status CheckHandle(const Handle& handle) const = 0;
  // `device` is local. INVALID_ARGUMENT: the driver refuses a value of the handle.
  virtual Result<Opened> Open(const CudaDevices& devices, const Device& device, const Handle& handle,
                              Access access) = 0;

  const std::string library_;
};

}  // namespace arraybridge

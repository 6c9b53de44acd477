// SPDX-License-Identifier: Apache-2.0
#include "client/memory/mapper_table.h"

#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/cuda/cuda_ipc_mapper.h"
#include "client/memory/cuda/cuda_vmm_mapper.h"
#include "client/memory/host/host_mapper.h"

namespace arraybridge {

std::shared_ptr<const MapperTable> MapperTable::OfThisProcess(const std::string& cuda_driver) {
  std::vector<std::unique_ptr<MemoryMapper>> mappers;
  mappers.push_back(MakeHostMapper());
  if (CudaDevices::Present(cuda_driver)) {
    mappers.push_back(MakeCudaVmmMapper(cuda_driver));
    mappers.push_back(MakeCudaIpcMapper(cuda_driver));
  }
  return std::make_shared<const MapperTable>(std::move(mappers), cuda_driver);
}

std::vector<HandleKind> MapperTable::kinds() const {
  std::vector<HandleKind> kinds;
  for (const auto& mapper : mappers_) kinds.push_back(mapper->kind());
  return kinds;
}

Result<MemoryMapper*> MapperTable::Of(HandleKind kind) const {
  for (const auto& mapper : mappers_) {
    if (mapper->kind() == kind) return mapper.get();
  }
  return Unimplemented("this process cannot open memory of kind ", static_cast<int>(kind),
                       ": it has no CUDA driver library");
}

Result<Device> MapperTable::Local(const Device& device) const {
  for (const auto& mapper : mappers_) {
    auto local = mapper->Local(device);
    if (local.ok() || local.status().code() != Code::kUnimplemented) return local;
  }
  if (device.type != kDeviceCuda) return Unimplemented("device type ", device.type, " is not supported");
  return Unavailable("this process has no CUDA driver library").Because("CUDA_LIBRARY_ABSENT");
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "client/one_memory/host_reach.h"

namespace arraybridge {

using cuda::CUdevice_attribute;

HostReach HostReachOf(const cuda::Driver& driver, cuda::CUdevice device) {
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.DeviceGetAttribute(&value, attribute, device) == cuda::CUDA_SUCCESS && value != 0;
  };
  const auto none = [](const char* why) { return HostReach{HostReach::Kind::kNone, why}; };
  if (!has(cuda::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)) return none("the driver maps no host memory into this GPU");
  if (!has(cuda::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)) {
    return none("the driver registers no host memory that it has not allocated");
  }
  if (!has(cuda::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)) {
    return none("the driver registers no read-only host memory, and shares are read-only");
  }
  // Page tables of the host: Grace, GB10. Pageable access without them moves pages over PCIe (HMM).
  const bool by_page_tables = has(cuda::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) &&
                              has(cuda::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  const bool one = by_page_tables || has(cuda::CU_DEVICE_ATTRIBUTE_INTEGRATED);
  return {one ? HostReach::Kind::kOneMemory : HostReach::Kind::kMapped, {}};
}

std::string TextOf(const HostReach& reach) {
  if (reach.kind == HostReach::Kind::kOneMemory) return "has one memory with the host";
  if (reach.kind == HostReach::Kind::kMapped) return "reads mapped host memory over its bus";
  return "reads no host memory in place: " + reach.why;
}

}  // namespace arraybridge

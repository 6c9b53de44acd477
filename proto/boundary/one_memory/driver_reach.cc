// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/one_memory/driver_reach.h"

namespace arraybridge {
namespace cuda {

HostReach ReachOf(const Driver& driver, CUdevice device) {
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
  };
  const auto none = [](const char* why) { return HostReach{HostReach::Kind::kNone, why}; };
  if (!has(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)) return none("the driver maps no host memory into this GPU");
  if (!has(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)) {
    return none("the driver registers no host memory that it has not allocated");
  }
  if (!has(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)) {
    return none("the driver registers no read-only host memory, and shares are read-only");
  }
  // Page tables of the host: Grace, GB10. Pageable access without them moves pages over PCIe (HMM).
  const bool by_page_tables = has(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) &&
                              has(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  const bool one = by_page_tables || has(CU_DEVICE_ATTRIBUTE_INTEGRATED);
  return {one ? HostReach::Kind::kOneMemory : HostReach::Kind::kMapped, {}};
}

}  // namespace cuda

std::string TextOf(const HostReach& reach) {
  if (reach.kind == HostReach::Kind::kOneMemory) return "has one memory with the host";
  if (reach.kind == HostReach::Kind::kMapped) return "reads mapped host memory over its bus";
  return "reads no host memory in place: " + reach.why;
}

}  // namespace arraybridge

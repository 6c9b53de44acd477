// SPDX-License-Identifier: Apache-2.0
// The UUID of a GPU identifies it in every process; ordinals can differ from process to process.
#pragma once

#include <string>
#include <string_view>

#include "proto/boundary/cuda/driver.h"

namespace arraybridge::cuda {

// The form that nvidia-smi prints: "GPU-", or "MIG-" for an instance of a partitioned GPU, and 8-4-4-4-12 hexadecimal
// digits.
inline std::string UuidText(const CUuuid& uuid, bool mig) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = mig ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[uuid.bytes[i] >> 4];
    text += digits[uuid.bytes[i] & 0xF];
  }
  return text;
}

// An instance of a partitioned GPU has its own UUID; only the device's name shows that it is an instance.
inline Result<std::string> UuidOf(const Driver& driver, CUdevice device) {
  CUuuid uuid{};
  AB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  char name[256] = {};
  AB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetName(name, sizeof name, device), "cuDeviceGetName"));
  return UuidText(uuid, std::string_view(name).find(" MIG ") != std::string_view::npos);
}

}  // namespace arraybridge::cuda

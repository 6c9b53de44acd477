// A GPU's name across processes: ordinals differ from one to the next, this does not.
#pragma once

#include <string>
#include <string_view>

#include "proto/boundary/driver.h"

namespace arraybridge::cuda {

// As nvidia-smi prints it: "GPU-", or "MIG-" for an instance of a partitioned one, and 8-4-4-4-12 hexadecimal digits.
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

// The driver gives an instance of a partitioned GPU a UUID of its own; that it is one, only its name says.
inline Result<std::string> UuidOf(const Driver& driver, CUdevice device) {
  CUuuid uuid{};
  AB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  char name[256] = {};
  AB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetName(name, sizeof name, device), "cuDeviceGetName"));
  return UuidText(uuid, std::string_view(name).find(" MIG ") != std::string_view::npos);
}

}  // namespace arraybridge::cuda

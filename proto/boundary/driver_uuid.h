// A GPU's name across processes: ordinals differ from one to the next, this does not.
#pragma once

#include <string>

#include "proto/boundary/driver_abi.h"

namespace arraybridge::cuda {

// As nvidia-smi prints it: "GPU-" and 8-4-4-4-12 hexadecimal digits.
inline std::string UuidText(const CUuuid& uuid) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[uuid.bytes[i] >> 4];
    text += digits[uuid.bytes[i] & 0xF];
  }
  return text;
}

}  // namespace arraybridge::cuda

// SPDX-License-Identifier: Apache-2.0
// The writer's side of the GPU benchmarks: for each size, a copy on the device and the additional cost of the broker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace arraybridge::bench {

struct GpuWork {
  std::string address;
  std::string driver;
  std::vector<uint64_t> sizes;  // bytes
  int rounds = 11;
  uint64_t host_bytes_max = uint64_t{1} << 30;  // larger arrays are not measured through host memory
};

// Prints one JSON line per figure: {id, bytes, us}. Exits with a message if one cannot be measured.
void MeasureGpu(const GpuWork& work);

}  // namespace arraybridge::bench

// SPDX-License-Identifier: Apache-2.0
// Memory of this process on the simulated GPU.
#pragma once

#include <string>

#include "tests/unit/client/cuda_owner.h"

namespace arraybridge {

// Allocated on the first GPU of `machine`, for the life of the object.
class OnGpu {
 public:
  OnGpu(const std::string& machine, uint64_t bytes) {
    Machine(machine);
    devices_ = *CudaDevices::OfThisProcess(kLibrary);
    const auto inside = devices_->Enter(0);
    EXPECT_EQ(devices_->driver().MemAlloc(&memory_, bytes), cuda::CUDA_SUCCESS);
  }
  ~OnGpu() {
    const auto inside = devices_->Enter(0);
    EXPECT_EQ(devices_->driver().MemFree(memory_), cuda::CUDA_SUCCESS);
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  void* data() const { return reinterpret_cast<void*>(memory_); }

 private:
  const CudaDevices* devices_ = nullptr;
  cuda::CUdeviceptr memory_ = 0;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A CudaPin is host memory that is registered with the CUDA driver (pinned), so that a GPU copies from it and to it
// while the caller continues. It owns the mapping of the memory: the registration ends before the memory is unmapped.
#pragma once

#include <cstdint>
#include <memory>

#include "client/memory/cuda/cuda_devices.h"
#include "client/process/device_event.h"

namespace arraybridge {

class CudaPin {
 public:
  // Registers the mapping [base, base + bytes) for all GPUs, and owns it on success. UNAVAILABLE: no driver, or no GPU.
  // FAILED_PRECONDITION in a forked child whose parent has used CUDA. Errors of the driver.
  static Result<std::shared_ptr<const CudaPin>> Of(void* base, uint64_t bytes);
  // The memory stays mapped if the driver fails to end the registration: later memory at this address would be taken
  // for it.
  ~CudaPin();
  CudaPin(const CudaPin&) = delete;
  CudaPin& operator=(const CudaPin&) = delete;

  // The end of all work that this process has queued on its GPUs so far. Null: there is none.
  std::shared_ptr<DeviceEvent> Now() const;
  // Keeps the pin until that work has ended, for which it waits; if a graph is being captured, until later.
  static void ReleaseAfterWork(const std::shared_ptr<const CudaPin>& pin);

 private:
  CudaPin(const CudaDevices& devices, int32_t ordinal, void* base, uint64_t bytes)
      : devices_(devices), ordinal_(ordinal), base_(base), bytes_(bytes) {}

  const CudaDevices& devices_;
  const int32_t ordinal_;  // of the GPU in whose context the memory is registered
  void* const base_;
  const uint64_t bytes_;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A CudaGpu is one GPU as the daemon uses it. It has the kinds of handles that it can share, its capacity, and its
// primary context, which zeroing and blocks for cudaIpcMemHandle need. The context costs hundreds of megabytes, so it
// is created at the first such need.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/memory/capacity.h"
#include "proto/boundary/cuda/driver.h"
#include "proto/boundary/cuda/driver_context.h"
#include "proto/boundary/cuda/driver_sharing.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// Thread-safe.
class CudaGpu {
 public:
  struct Refusals : cuda::Refusals {
    std::vector<HandleKind> unlisted;  // kinds that only the configuration leaves out
  };

  CudaGpu(std::shared_ptr<const cuda::Driver> driver, cuda::CUdevice ordinal, Device device, Refusals refusals,
          uint64_t granularity, uint64_t capacity_bytes);
  ~CudaGpu();

  // The driver's description of memory on that GPU that can be exported as a descriptor.
  static cuda::CUmemAllocationProp ShareableMemoryOf(cuda::CUdevice ordinal);

  const cuda::Driver& driver() const { return *driver_; }
  // The CUDA version that the driver supports, in the form "12.8".
  std::string driver_version() const;
  cuda::CUdevice ordinal() const { return ordinal_; }
  const Device& device() const { return device_; }
  const Refusals& refusals() const { return refusals_; }
  // In bytes; the size of a block is a multiple of it. 0 if VMM is refused.
  uint64_t granularity() const { return granularity_; }
  const std::shared_ptr<Capacity>& capacity() const { return capacity_; }

  // Makes the primary context current on this thread until the guard is destroyed. The first call retains the context.
  Result<cuda::ContextGuard> PushContext() const AB_EXCLUDES(mutex_);
  // Clears bytes that may contain data of other processes, and waits until they are cleared. REQUIRES: a guard of
  // PushContext exists.
  Status Zero(cuda::CUdeviceptr address, uint64_t bytes) const AB_EXCLUDES(mutex_);

  // UNAVAILABLE, with the name of the call, after a call has failed in a way from which no later call recovers. This
  // GPU is then out of service; other GPUs continue.
  Status CheckServing() const;
  // Checks whether the result of a call puts the GPU out of service, and returns it.
  Status Note(Status status) const;
  // Sets the callback for the GPU going out of service. It is called once, on the thread whose call failed, or at once
  // if the GPU is already out of service. Null removes it, and it is not running when WhenLost returns. The callback
  // must not block or call this GPU.
  void WhenLost(std::function<void()> callback) AB_EXCLUDES(lost_mutex_);

  // Call it when this process exits: freeing memory that other processes still have open is undefined behaviour. From
  // now on nothing is freed that the driver frees when the process exits.
  void LeaveToTheDriver() { leaving_ = true; }
  bool LeftToTheDriver() const { return leaving_.load(); }

 private:
  const std::shared_ptr<const cuda::Driver> driver_;
  const cuda::CUdevice ordinal_;
  const Device device_;
  const Refusals refusals_;
  const uint64_t granularity_;
  const std::shared_ptr<Capacity> capacity_;
  std::atomic<bool> leaving_{false};
  mutable std::atomic<bool> lost_{false};
  mutable Mutex lost_mutex_;
  mutable std::function<void()> when_lost_ AB_GUARDED_BY(lost_mutex_);
  mutable std::string why_lost_ AB_GUARDED_BY(lost_mutex_);
  mutable Mutex mutex_;
  mutable cuda::CUcontext context_ AB_GUARDED_BY(mutex_) = nullptr;
  mutable cuda::CUstream stream_ AB_GUARDED_BY(mutex_) = nullptr;
};

using Platform = cuda::Platform;

struct FoundGpus {
  // A GPU for which the driver does not report facts that the daemon needs. The other GPUs serve.
  struct Broken {
    Device device;  // without a UUID if the driver does not report one
    Status why;
  };

  std::vector<std::shared_ptr<CudaGpu>> all;
  std::vector<Broken> broken;
};

// Every GPU that the driver at `path` (empty: the system's driver) reports, each with its terms. UNAVAILABLE: there is
// none, because there is no library or device, or the driver is too old (proto/boundary/cuda/driver.h).
Result<FoundGpus> FindCudaGpus(const std::string& path, const GpuTable& terms,
                               const Platform& platform = Platform::Here());

}  // namespace arraybridge::daemon

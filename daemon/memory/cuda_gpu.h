// A CudaGpu is one GPU as the daemon uses it: what it can share, how much of it may be handed out, and the primary
// context for what needs one (zeroing, blocks for cudaIpcMemHandle). No context is made before the first such need: it
// costs hundreds of megabytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/memory/capacity.h"
#include "proto/boundary/driver.h"
#include "proto/boundary/driver_context.h"
#include "proto/boundary/driver_sharing.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class CudaGpu {
 public:
  struct Refusals : cuda::Refusals {
    std::vector<HandleKind> unlisted;  // of these: what the configuration leaves out
  };

  CudaGpu(std::shared_ptr<const cuda::Driver> driver, cuda::CUdevice ordinal, Device device, Refusals refusals,
          uint64_t granularity, uint64_t capacity_bytes);
  ~CudaGpu();
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  // Memory of that GPU which can be passed on as a descriptor, as the driver wants it described.
  static cuda::CUmemAllocationProp ShareableMemoryOf(cuda::CUdevice ordinal);

  const cuda::Driver& driver() const { return *driver_; }
  // The CUDA version that the driver supports, as "12.8".
  std::string driver_version() const;
  cuda::CUdevice ordinal() const { return ordinal_; }
  const Device& device() const { return device_; }
  const Refusals& refusals() const { return refusals_; }
  // Bytes: blocks are multiples of this. 0 if VMM is refused.
  uint64_t granularity() const { return granularity_; }
  const std::shared_ptr<Capacity>& capacity() const { return capacity_; }

  // Makes the primary context current on this thread until the guard dies; retained with the first call.
  Result<cuda::ContextGuard> PushContext() const AB_EXCLUDES(mutex_);
  // Clears bytes that may hold what others left there, and waits for it. REQUIRES: Enter's guard lives.
  Status Zero(cuda::CUdeviceptr address, uint64_t bytes) const AB_EXCLUDES(mutex_);

  // UNAVAILABLE, and which call it was, once one has failed in a way that no later one recovers from: this GPU is out
  // of service, others go on.
  Status CheckServing() const;
  // Looks at what a call returned, and passes it on.
  Status Note(Status status) const;
  // Called once, on the thread whose call failed, when the GPU goes out of service; at once if it has; null: no more,
  // and it does not run. It must not block, nor ask this GPU.
  void WhenLost(std::function<void()> told) AB_EXCLUDES(told_mutex_);

  // This process ends, and others may have its memory open: to free that is undefined. From now on nothing is freed
  // that the driver lets go of with the process.
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
  mutable Mutex told_mutex_;
  mutable std::function<void()> told_ AB_GUARDED_BY(told_mutex_);
  mutable std::string why_lost_ AB_GUARDED_BY(told_mutex_);
  mutable Mutex mutex_;
  mutable cuda::CUcontext context_ AB_GUARDED_BY(mutex_) = nullptr;
  mutable cuda::CUstream stream_ AB_GUARDED_BY(mutex_) = nullptr;
};

using Platform = cuda::Platform;

struct FoundGpus {
  // One of which the driver does not say what a daemon must know. Its neighbours serve.
  struct Broken {
    Device device;  // without a UUID if the driver did not even say that
    Status why;
  };

  std::vector<std::shared_ptr<CudaGpu>> all;
  std::vector<Broken> broken;
};

// Every GPU that the driver at `path` shows (empty: the system's), on the terms that hold for it.
// UNAVAILABLE says why there is none: no library, no device, too old (proto/boundary/driver.h).
Result<FoundGpus> FindCudaGpus(const std::string& path, const GpuTable& terms,
                               const Platform& platform = Platform::Here());

}  // namespace arraybridge

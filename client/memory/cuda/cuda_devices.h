// SPDX-License-Identifier: Apache-2.0
// CudaDevices are the GPUs that this process sees: the driver, which is loaded and initialised when the first array
// needs it, the UUID of each GPU, and its primary context. A primary context is retained at its first use and never
// released, since frameworks work in it. There is one CudaDevices per process, as there is one driver. In a forked
// child all functions fail, because CUDA does not work there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/boundary/cuda/driver.h"
#include "proto/boundary/cuda/driver_context.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// While a CudaScope lives, the calling thread is inside a GPU's primary context, and its calls do not disturb a graph
// capture of another thread. It must be destroyed on the same thread, which restores both.
class CudaScope {
 public:
  static Result<CudaScope> Enter(const cuda::Driver& driver, cuda::CUcontext context);

  CudaScope(CudaScope&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), mode_(other.mode_), context_(std::move(other.context_)) {}
  CudaScope& operator=(CudaScope&&) = delete;
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;
  ~CudaScope();

 private:
  explicit CudaScope(const cuda::Driver& driver) : driver_(&driver) {}

  const cuda::Driver* driver_;  // null: nothing to restore
  cuda::CUstreamCaptureMode mode_ = cuda::CU_STREAM_CAPTURE_MODE_RELAXED;
  std::optional<cuda::ContextGuard> context_;
};

// The calling thread, inside the context of one GPU.
struct CudaPlace {
  const cuda::Driver& driver;
  CudaScope scope;
};

// Thread-safe.
class CudaDevices {
 public:
  // `library`: the path of the driver, empty for libcuda.so.1; the first successful call decides for all. UNAVAILABLE
  // as in Driver::Load; FAILED_PRECONDITION in a forked child whose parent has used CUDA.
  static Result<const CudaDevices*> OfThisProcess(const std::string& library = {});
  // Null if no array has needed a GPU, and in a forked child.
  static const CudaDevices* IfUsed();
  // The same if this process has initialised the driver, as frameworks do; otherwise null. Initialises nothing.
  static const CudaDevices* IfInitialised(const std::string& library);
  // The CUDA version of the driver, 0 if it cannot be loaded. Initialises nothing.
  static int DriverVersion(const std::string& library);
  // True if the library can be loaded. Loads it, and initialises nothing.
  static bool Present(const std::string& library);

  const cuda::Driver& driver() const { return driver_; }
  std::vector<Device> all() const;
  // Returns the device with its ordinal in this process, found by its UUID, or by the ordinal if it has no UUID.
  // FAILED_PRECONDITION lists the visible devices.
  Result<Device> Find(const Device& device) const;
  // Find, for mappers. UNIMPLEMENTED: the device is not a GPU.
  static Result<Device> Local(const Device& device, const std::string& library);
  // True if work on GPU `from` may access memory of GPU `to`. REQUIRES: ordinals from Find.
  bool Reaches(int32_t from, int32_t to) const;
  // The GPUs, itself included, whose work may access memory of this one. REQUIRES: an ordinal from Find.
  std::vector<int32_t> WhoReach(int32_t ordinal) const;
  // Called when the driver refuses peer access that it has announced: from then on no GPU reaches another.
  void ForgetPeers() const { peers_.store(false); }
  // REQUIRES: an ordinal from Find. FAILED_PRECONDITION in a forked child.
  Result<CudaScope> Enter(int32_t ordinal) const;
  // The GPUs in whose primary contexts this process may have work: they exist, whoever made them. Creates none.
  std::vector<int32_t> Active() const;
  // Null if the context was not used yet. REQUIRES: an ordinal from Find.
  cuda::CUcontext ContextOf(int32_t ordinal) const {
    return gpus_.at(static_cast<size_t>(ordinal))->context.load(std::memory_order_acquire);
  }
  // OfThisProcess, Find and Enter in one call.
  static Result<CudaPlace> At(const Device& device);
  // A stream of this library, which does not synchronise with others. REQUIRES: the scope of Enter lives.
  Result<cuda::CUstream> OwnStream(int32_t ordinal) const;

 private:
  struct Gpu {
    Device device;
    cuda::CUdevice number = 0;
    mutable std::atomic<cuda::CUcontext> context{nullptr};
    mutable std::atomic<cuda::CUstream> stream{nullptr};
  };

  explicit CudaDevices(const cuda::Driver& driver);
  static Result<std::unique_ptr<CudaDevices>> Load(const std::string& library);
  // FAILED_PRECONDITION in a forked child.
  Status CheckNotForked() const;

  const cuda::Driver driver_;
  const uint64_t fork_generation_;
  mutable std::atomic<bool> peers_{true};
  std::vector<std::unique_ptr<Gpu>> gpus_;  // by ordinal
};

}  // namespace arraybridge

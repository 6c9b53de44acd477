// The CudaDevices are the GPUs that this process sees: the driver, loaded and initialised when the first array needs
// it, each GPU's name across processes, and its primary context, retained with its first use and never released, since
// frameworks work in it. One per process, as the driver itself is. After a fork nothing here works in the child: CUDA
// does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/boundary/driver.h"
#include "proto/boundary/driver_context.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// While it lives the calling thread is inside a GPU's primary context, and a graph that somebody captures meanwhile is
// not disturbed by what this thread calls. Destroyed on the same thread, it restores both.
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

// The calling thread inside one GPU's context.
struct CudaPlace {
  const cuda::Driver& driver;
  CudaScope scope;
};

// Thread-safe.
class CudaDevices {
 public:
  // `library`: the driver's path, empty for libcuda.so.1; the first call that succeeds decides for all. UNAVAILABLE as
  // Driver::Load says; FAILED_PRECONDITION in a forked child whose parent has used CUDA.
  static Result<const CudaDevices*> OfThisProcess(const std::string& library = {});
  // Null while no array has needed a GPU, and in a forked child.
  static const CudaDevices* IfUsed();
  // The same where anybody in this process has initialised the driver, as frameworks do; null where nobody has.
  // Initialises nothing.
  static const CudaDevices* IfInitialised(const std::string& library);
  // The CUDA version that the driver supports, 0 if it cannot be loaded. Initialises nothing.
  static int DriverVersion(const std::string& library);
  // Whether the library can be loaded: it is, and nothing is initialised.
  static bool Present(const std::string& library);

  const cuda::Driver& driver() const { return driver_; }
  std::vector<Device> all() const;
  // The same device by this process's number: found by its UUID, or by the number if it has none. FAILED_PRECONDITION
  // lists the devices that are visible here.
  Result<Device> Find(const Device& device) const;
  // Find, for mappers. UNIMPLEMENTED for a device that is no GPU.
  static Result<Device> Local(const Device& device, const std::string& library);
  // Whether work on the one GPU may touch memory of the other. REQUIRES: ordinals that Find gave.
  bool Reaches(int32_t from, int32_t to) const;
  // The GPUs, itself included, whose work may touch memory of this one. REQUIRES: as above.
  std::vector<int32_t> WhoReach(int32_t ordinal) const;
  // The driver refused what it said was possible: from now on no GPU reaches another.
  void ForgetPeers() const { peers_.store(false); }
  // REQUIRES: an ordinal that Find gave. FAILED_PRECONDITION in a forked child.
  Result<CudaScope> Enter(int32_t ordinal) const;
  // Null while nothing was done there. REQUIRES: an ordinal that Find gave.
  cuda::CUcontext ContextOf(int32_t ordinal) const {
    return gpus_.at(static_cast<size_t>(ordinal))->context.load(std::memory_order_acquire);
  }
  // OfThisProcess, Find and Enter in one: where work on this device is asked for.
  static Result<CudaPlace> At(const Device& device);
  // A stream of our own, which waits for nobody else's. REQUIRES: Enter's scope lives.
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

// SPDX-License-Identifier: Apache-2.0
// The CudaEventPool holds the interprocess events that this process records when it publishes before its GPU has
// finished. Their number is fixed, because a process can have at most a thousand. All are created at the first need,
// because creating one while streams are busy has blocked old drivers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "client/memory/cuda/cuda_devices.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class CudaEventPool {
 public:
  static constexpr size_t kEvents = 64;

  // The pool of this GPU. It is never destroyed, because readers may have its events open. It is empty if the driver
  // has no interprocess events. REQUIRES: a scope of that GPU lives on this thread.
  static CudaEventPool& Of(const CudaDevices& devices, int32_t ordinal);
  // Finds, in the pools of all GPUs, the event with this handle, because a process cannot open its own events. Null:
  // none.
  static cuda::CUevent FindOwn(const std::string& handle);

  struct Event {
    cuda::CUevent event = nullptr;
    std::string handle;  // with which other processes open it
  };
  // Takes an event that no reader waits for; null if none is left.
  const Event* Take();
  void Release(const Event* event);

 private:
  explicit CudaEventPool(std::vector<Event> events);
  static std::vector<Event> Make(const cuda::Driver& driver);

  const std::vector<Event> events_;
  Mutex mutex_;
  std::vector<const Event*> free_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

// The CudaEventPool holds the interprocess events that this process records when it publishes before its GPU is done: a
// fixed number, made all at once with the first need, because making one while streams are busy has blocked old
// drivers, and because a process may have a thousand at most.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "client/memory/cuda_devices.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class CudaEventPool {
 public:
  static constexpr size_t kEvents = 64;

  // The one of this GPU, never destroyed: readers may have its events open. Empty where the driver has no interprocess
  // events. REQUIRES: a scope of that GPU lives on this thread.
  static CudaEventPool& Of(const CudaDevices& devices, int32_t ordinal);
  // Of any GPU: the event that this process itself gave that name; it cannot open its own. Null: none.
  static cuda::CUevent FindOwn(const std::string& handle);

  struct Event {
    cuda::CUevent event = nullptr;
    std::string handle;  // as others open it
  };
  // One that nobody waits for; null if there is none left.
  const Event* Take();
  void GiveBack(const Event* event);

 private:
  explicit CudaEventPool(std::vector<Event> events);
  static std::vector<Event> Make(const cuda::Driver& driver);

  const std::vector<Event> events_;
  Mutex mutex_;
  std::vector<const Event*> free_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

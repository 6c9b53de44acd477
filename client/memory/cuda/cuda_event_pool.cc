// SPDX-License-Identifier: Apache-2.0
#include "client/memory/cuda/cuda_event_pool.h"

#include <map>
#include <memory>
#include <utility>

namespace arraybridge {
namespace {

// By ordinal of the GPU. Never destroyed.
struct Pools {
  Mutex mutex;
  std::map<int32_t, std::unique_ptr<CudaEventPool>> of AB_GUARDED_BY(mutex);
};

Pools& AllPools() {
  static auto* const pools = new Pools;
  return *pools;
}

}  // namespace

CudaEventPool::CudaEventPool(std::vector<Event> events) : events_(std::move(events)) {
  for (const Event& event : events_) free_.push_back(&event);
}

CudaEventPool& CudaEventPool::Of(const CudaDevices& devices, int32_t ordinal) {
  Pools& pools = AllPools();
  {
    MutexLock lock(pools.mutex);
    if (const auto known = pools.of.find(ordinal); known != pools.of.end()) return *known->second;
  }
  std::vector<Event> events = Make(devices.driver());
  std::vector<Event> needless;
  CudaEventPool* pool = nullptr;
  {
    MutexLock lock(pools.mutex);
    auto& place = pools.of[ordinal];
    if (place == nullptr) {
      place.reset(new CudaEventPool(std::move(events)));
    } else {
      needless = std::move(events);  // another thread was first
    }
    pool = place.get();
  }
  for (const Event& event : needless) devices.driver().EventDestroy(event.event);
  return *pool;
}

// Does not retry a call that the driver has refused. Takes the handles on the thread that creates the events, because
// some drivers give them to no other thread.
std::vector<CudaEventPool::Event> CudaEventPool::Make(const cuda::Driver& driver) {
  constexpr uint32_t kFlags = cuda::kEventInterprocess | cuda::kEventDisableTiming | cuda::kEventBlockingSync;
  std::vector<Event> events;
  events.reserve(kEvents);
  while (events.size() < kEvents) {
    Event made;
    if (driver.EventCreate(&made.event, kFlags) != cuda::CUDA_SUCCESS) return events;
    cuda::CUipcEventHandle handle{};
    if (driver.IpcGetEventHandle(&handle, made.event) != cuda::CUDA_SUCCESS) {
      driver.EventDestroy(made.event);
      return events;
    }
    made.handle.assign(reinterpret_cast<const char*>(handle.reserved), sizeof handle.reserved);
    events.push_back(std::move(made));
  }
  return events;
}

cuda::CUevent CudaEventPool::FindOwn(const std::string& handle) {
  Pools& pools = AllPools();
  MutexLock lock(pools.mutex);
  for (const auto& [ordinal, pool] : pools.of) {
    for (const Event& event : pool->events_) {
      if (event.handle == handle) return event.event;
    }
  }
  return nullptr;
}

const CudaEventPool::Event* CudaEventPool::Take() {
  MutexLock lock(mutex_);
  if (free_.empty()) return nullptr;
  const Event* const taken = free_.back();
  free_.pop_back();
  return taken;
}

void CudaEventPool::Release(const Event* event) {
  MutexLock lock(mutex_);
  free_.push_back(event);
}

}  // namespace arraybridge

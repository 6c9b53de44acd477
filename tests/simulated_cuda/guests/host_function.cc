// SPDX-License-Identifier: Apache-2.0
// Functions of the client as work of a stream. As on hardware, a thread of the driver calls them, which may not call
// the driver itself.
#include <thread>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {
namespace {

thread_local bool in_host_function = false;

// Calls `function` in a thread of its own, without the lock, and waits for it.
void CallAside(Lock& lock, const std::function<void()>& function) {
  lock.unlock();
  std::thread([&function] {
    in_host_function = true;
    function();
  }).join();
  lock.lock();
}

// Frameworks wait for a function's effect by other means than calls of the driver, so for them a thread runs what was
// enqueued before it, and it.
void RunSoon(Process& process, const std::shared_ptr<Stream>& stream) {
  std::thread([&process, stream, position = stream->tail()] {
    Lock lock(process.mutex);
    while (process.IsPaused()) process.changed.wait_until(lock, process.paused_until);
    stream->Run(lock, position, process.changed);
  }).detach();
}

CUresult EnqueueHost(const char* symbol, CUstream stream, const std::function<void()>& function) {
  Call call(symbol, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindStream(symbol, stream, call.context());
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult captured = call.process.capture.RefusalToUse(*found)) return captured;
  Work work{.symbol = symbol, .run = {}};
  work.run = [function](Lock& lock) {
    CallAside(lock, function);
    return CUDA_SUCCESS;
  };
  call.process.Enqueue(found, std::move(work));
  if (call.process.config.guest) RunSoon(call.process, found);
  return CUDA_SUCCESS;
}

}  // namespace

bool InHostFunction() { return in_host_function; }

SIM_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  if (function == nullptr) return EnqueueHost(__func__, stream, nullptr);
  return EnqueueHost(__func__, stream, [function, data] { function(data); });
}

SIM_API cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data, unsigned int flags) {
  if (flags != 0 || function == nullptr) return EnqueueHost(__func__, stream, nullptr);
  return EnqueueHost(__func__, stream, [stream, function, data] { function(stream, CUDA_SUCCESS, data); });
}

}  // namespace arraybridge::simulated

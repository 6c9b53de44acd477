// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {

SIM_API cuStreamCreate(CUstream* stream, unsigned int flags) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (stream == nullptr || flags > kStreamNonBlocking) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Stream>(call.context(), flags == 0, false);
  *stream = reinterpret_cast<CUstream>(made.get());
  call.process.destroyed.erase(*stream);
  call.process.streams[*stream] = std::move(made);
  return CUDA_SUCCESS;
}

// Queued work remains queued and runs when a call waits for it.
SIM_API cuStreamDestroy_v2(CUstream stream) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  if (call.process.destroyed.count(stream) != 0) {
    Violation(__func__, "destroyed twice", reinterpret_cast<uintptr_t>(stream));
  }
  const auto found = call.process.streams.find(stream);
  if (found == call.process.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  call.process.draining.push_back(std::move(found->second));
  call.process.streams.erase(found);
  call.process.destroyed.insert(stream);
  return CUDA_SUCCESS;
}

SIM_API cuStreamSynchronize(CUstream stream) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindStream(__func__, stream, call.context());
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = call.process.capture.RefusalToWaitFor(*found)) return captured;
  const uint64_t tail = found->tail();
  if (!found->legacy) return found->Run(call.lock, tail, call.process.changed);
  // The legacy stream is ordered after the others only if it has work.
  for (const auto& other : call.process.StreamsOf(*call.context())) {
    if (!other->blocking || other == found) continue;
    const CUresult result = other->Run(call.lock, other->tail(), call.process.changed);
    if (result != CUDA_SUCCESS) return result;
  }
  return found->Run(call.lock, tail, call.process.changed);
}

// Returns NOT_READY, but makes some progress with each call.
SIM_API cuStreamQuery(CUstream stream) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindStream(__func__, stream, call.context());
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = call.process.capture.RefusalToWaitFor(*found)) return captured;
  if (found->idle()) return CUDA_SUCCESS;
  if (call.process.IsHeld()) return CUDA_ERROR_NOT_READY;
  const CUresult result = found->RunOne(call.lock, call.process.changed);
  return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

SIM_API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto waiting = call.process.FindStream(__func__, stream, call.context());
  const auto awaited = call.process.FindEvent(__func__, event);
  if (waiting == nullptr || awaited == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = call.process.capture.RefusalToUse(*waiting)) return captured;
  if (!awaited->OwnerKeepsIt()) Violation(__func__, "the exporter destroyed this event");
  if (const CUresult refused = call.process.capture.RefusalToDependOn(*awaited, *waiting)) return refused;
  const uint64_t record = awaited->Latest();
  if (record == 0) return CUDA_SUCCESS;  // an event that was never recorded counts as complete
  // Keeps the event alive, because it may be destroyed before the work runs.
  Work work{.symbol = __func__, .run = {}};
  work.run = [awaited, record](Lock& lock) { return Complete(lock, awaited, record); };
  call.process.Enqueue(waiting, std::move(work));
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated

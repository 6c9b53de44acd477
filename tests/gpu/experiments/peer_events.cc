// SPDX-License-Identifier: Apache-2.0
// Order between processes: interprocess events, and counters in shared memory.
#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUevent;
using cuda::CUresult;

constexpr unsigned kInterprocess = cuda::kEventInterprocess | cuda::kEventDisableTiming;

Reply MakeEvent(State& state, const Words& words) {
  return {state.Call("cuEventCreate", state.driver.EventCreate, &state.events[words[0]], kInterprocess)};
}

Reply EventHandle(State& state, const Words& words) {
  cuda::CUipcEventHandle handle{};
  const CUresult result =
      state.Call("cuIpcGetEventHandle", state.driver.IpcGetEventHandle, &handle, state.events[words[0]]);
  return {result, Hexadecimal(&handle, sizeof handle)};
}

Reply OpenEvent(State& state, const Words& words) {
  cuda::CUipcEventHandle handle{};
  FromHexadecimal(words[1], &handle, sizeof handle);
  return {state.Call("cuIpcOpenEventHandle", state.driver.IpcOpenEventHandle, &state.events[words[0]], handle)};
}

// One copy of the first half of a block over the second.
CUresult CopyHalf(const State& state, const Block& block, cuda::CUstream stream) {
  const uint64_t half = block.mapped / 2;
  return state.driver.MemcpyDtoDAsync(block.address + half, block.address, half, stream);
}

// busy NAME MILLISECONDS
Reply KeepBusy(State& state, const Words& words) {
  return KeepBusyOn(state, state.blocks[words[0]], words.Number(1), state.stream);
}

// legacy_waits NAME MILLISECONDS: queues work on this thread's own default stream, and synchronises the legacy one. The
// value: whether the work has ended then.
Reply LegacyWaits(State& state, const Words& words) {
  auto* const own = reinterpret_cast<cuda::CUstream>(cuda::kStreamPerThread);
  auto* const legacy = reinterpret_cast<cuda::CUstream>(cuda::kStreamLegacy);
  CUevent ended = nullptr;
  CUresult result = state.driver.EventCreate(&ended, cuda::kEventDisableTiming);
  if (result == cuda::CUDA_SUCCESS) result = KeepBusyOn(state, state.blocks[words[0]], words.Number(1), own).result;
  if (result == cuda::CUDA_SUCCESS) result = state.driver.EventRecord(ended, own);
  if (result == cuda::CUDA_SUCCESS) result = state.Call("cuStreamSynchronize", state.driver.StreamSynchronize, legacy);
  if (result != cuda::CUDA_SUCCESS) return {result, "could not be asked"};
  const bool waited = state.driver.EventQuery(ended) == cuda::CUDA_SUCCESS;
  return {state.driver.StreamSynchronize(own), waited ? "waited" : "did not wait"};
}

// copy TO FROM: whole blocks, on the stream.
Reply Copy(State& state, const Words& words) {
  const Block& to = state.blocks[words[0]];
  const Block& from = state.blocks[words[1]];
  return {state.Call("cuMemcpyDtoDAsync", state.driver.MemcpyDtoDAsync, to.address, from.address, from.mapped,
                     state.stream)};
}

// await EVENT MILLISECONDS: queries it until it is done, or the time has expired.
Reply Await(State& state, const Words& words) {
  const auto begun = std::chrono::steady_clock::now();
  CUresult result = cuda::CUDA_ERROR_NOT_READY;
  while (result == cuda::CUDA_ERROR_NOT_READY &&
         MicrosecondsSince(begun) < 1000.0 * static_cast<double>(words.Number(1))) {
    result = state.driver.EventQuery(state.events[words[0]]);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  state.recorder.Write("cuEventQuery", result, MicrosecondsSince(begun));
  return {result, Concat("after ", static_cast<uint64_t>(MicrosecondsSince(begun) / 1000), " ms")};
}

// events_until_refused COUNT
Reply EventsUntilRefused(State& state, const Words& words) {
  std::vector<CUevent> made;
  CUresult result = cuda::CUDA_SUCCESS;
  const auto begun = std::chrono::steady_clock::now();
  while (result == cuda::CUDA_SUCCESS && made.size() < words.Number(0)) {
    CUevent event = nullptr;
    result = state.driver.EventCreate(&event, kInterprocess);
    cuda::CUipcEventHandle handle{};
    if (result == cuda::CUDA_SUCCESS) result = state.driver.IpcGetEventHandle(&handle, event);
    if (event != nullptr) made.push_back(event);
  }
  state.recorder.Write("cuEventCreate", result, MicrosecondsSince(begun));
  for (const CUevent event : made) state.driver.EventDestroy(event);
  return {cuda::CUDA_SUCCESS, Concat(made.size(), " events, then ", static_cast<uint32_t>(result))};
}

// write_value BLOCK FROM TO, wait_value BLOCK FROM TO: a counter at the block's start, step by step.
template <class Function>
CUresult Steps(const State& state, const char* symbol, Function* function, const Words& words) {
  if (function == nullptr) return cuda::CUDA_ERROR_NOT_FOUND;
  const cuda::CUdeviceptr address = state.blocks.at(words[0]).address;
  const auto begun = std::chrono::steady_clock::now();
  CUresult result = cuda::CUDA_SUCCESS;
  for (uint64_t i = words.Number(1); i <= words.Number(2) && result == cuda::CUDA_SUCCESS; ++i) {
    result = function(state.stream, address, i, 0u);  // waiting: until it has at least that value
    if (result == cuda::CUDA_SUCCESS && i % 256 == 0) result = state.driver.StreamSynchronize(state.stream);
  }
  if (result == cuda::CUDA_SUCCESS) result = state.driver.StreamSynchronize(state.stream);
  state.recorder.Write(symbol, result, MicrosecondsSince(begun));
  return result;
}

}  // namespace

Reply KeepBusyOn(State& state, const Block& scratch, uint64_t milliseconds, cuda::CUstream stream) {
  if (Spin(state, milliseconds, stream) == cuda::CUDA_SUCCESS) {
    return {cuda::CUDA_SUCCESS, Concat("a kernel of ", milliseconds, " ms")};
  }
  CUresult result = CopyHalf(state, scratch, stream);  // the first copy costs more
  if (result == cuda::CUDA_SUCCESS) result = state.driver.StreamSynchronize(stream);
  const auto begun = std::chrono::steady_clock::now();
  constexpr int measured = 8;
  for (int i = 0; i < measured && result == cuda::CUDA_SUCCESS; ++i) result = CopyHalf(state, scratch, stream);
  if (result == cuda::CUDA_SUCCESS) result = state.driver.StreamSynchronize(stream);
  const double each = MicrosecondsSince(begun) / measured;
  const double wanted = static_cast<double>(milliseconds) * 1000 / std::max(each, 1.0);
  const auto copies = static_cast<uint64_t>(std::min(wanted, 900.0));  // a stream's queue blocks when it is full
  for (uint64_t i = 0; i < copies && result == cuda::CUDA_SUCCESS; ++i) result = CopyHalf(state, scratch, stream);
  state.recorder.Write("cuMemcpyDtoDAsync", result, each);
  return {result, Concat(copies, " copies of ", static_cast<uint64_t>(each), " us")};
}

void AddEventVerbs(Verbs& verbs) {
  verbs.insert({
      {"event", MakeEvent},
      {"event_handle", EventHandle},
      {"open_event", OpenEvent},
      {"busy", KeepBusy},
      {"legacy_waits", LegacyWaits},
      {"copy", Copy},
      {"await", Await},
      {"events_until_refused", EventsUntilRefused},
      {"record",
       [](State& state, const Words& words) -> Reply {
         return {state.Call("cuEventRecord", state.driver.EventRecord, state.events[words[0]], state.stream)};
       }},
      {"query",
       [](State& state, const Words& words) -> Reply {
         return {state.Call("cuEventQuery", state.driver.EventQuery, state.events[words[0]])};
       }},
      {"wait",
       [](State& state, const Words& words) -> Reply {
         return {
             state.Call("cuStreamWaitEvent", state.driver.StreamWaitEvent, state.stream, state.events[words[0]], 0)};
       }},
      {"destroy",
       [](State& state, const Words& words) -> Reply {
         return {state.Call("cuEventDestroy", state.driver.EventDestroy, state.events[words[0]])};
       }},
      {"write_value",
       [](State& state, const Words& words) -> Reply {
         return {Steps(state, "cuStreamWriteValue64", state.driver.StreamWriteValue64, words)};
       }},
      {"wait_value",
       [](State& state, const Words& words) -> Reply {
         return {Steps(state, "cuStreamWaitValue64", state.driver.StreamWaitValue64, words)};
       }},
  });
}

}  // namespace arraybridge::experiments

// SPDX-License-Identifier: Apache-2.0
// Calls that a graph capture in one thread forbids to another.
#include <thread>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

// Makes the call under test, on objects that were made before the capture.
CUresult Make(State& state, const std::string& call, Block& block) {
  if (call == "map") return MapBlock(state, block, block.bytes, 0, cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (call == "alloc") return state.Call("cuMemAlloc", state.driver.MemAlloc, &block.address, block.bytes);
  if (call == "synchronize") return state.Call("cuCtxSynchronize", state.driver.CtxSynchronize);
  if (state.driver.CtxRecordEvent == nullptr) return cuda::CUDA_ERROR_NOT_FOUND;
  return state.Call("cuCtxRecordEvent", state.driver.CtxRecordEvent, state.context, state.events["capture"]);
}

// capture CALL plain|relaxed: makes the call in another thread while this one captures in GLOBAL mode. The value: the
// result of ending the capture.
Reply Capture(State& state, const Words& words) {
  using Begin = CUresult(cuda::CUstream, cuda::CUstreamCaptureMode);
  using End = CUresult(cuda::CUstream, void**);
  auto* const begin = reinterpret_cast<Begin*>(state.Exported("cuStreamBeginCapture_v2"));
  auto* const end = reinterpret_cast<End*>(state.Exported("cuStreamEndCapture"));
  if (begin == nullptr || end == nullptr) return {cuda::CUDA_ERROR_NOT_FOUND, "no captures"};
  Block block{.handle = 0, .address = 0, .bytes = uint64_t{2} << 20, .mapped = 0, .descriptor = {}};
  const auto properties = BlockProperties();
  CUresult result = state.Call("cuMemCreate", state.driver.MemCreate, &block.handle, block.bytes, &properties, 0);
  if (result == cuda::CUDA_SUCCESS) {
    result = state.Call("cuEventCreate", state.driver.EventCreate, &state.events["capture"], cuda::kEventDisableTiming);
  }
  if (result == cuda::CUDA_SUCCESS) {
    result = state.Call("cuStreamBeginCapture", begin, state.stream, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL);
  }
  if (result != cuda::CUDA_SUCCESS) return {result, "could not begin"};
  std::thread([&] {
    state.driver.CtxSetCurrent(state.context);
    auto mode = cuda::CU_STREAM_CAPTURE_MODE_RELAXED;
    if (words[1] == "relaxed") state.driver.ThreadExchangeStreamCaptureMode(&mode);
    result = Make(state, words[0], block);
  }).join();
  void* graph = nullptr;
  const CUresult ended = state.Call("cuStreamEndCapture", end, state.stream, &graph);
  return {result, Concat("end of capture ", static_cast<uint32_t>(ended))};
}

}  // namespace

void AddCaptureVerbs(Verbs& verbs) { verbs.insert({{"capture", Capture}}); }

}  // namespace arraybridge::experiments

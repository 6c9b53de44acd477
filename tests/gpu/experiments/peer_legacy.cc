// SPDX-License-Identifier: Apache-2.0
// Memory that is shared by the 64 bytes of a cudaIpcMemHandle.
#include <cstring>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

// alloc NAME BYTES
Reply Alloc(State& state, const Words& words) {
  Block& block = state.blocks[words[0]];
  block.bytes = block.mapped = words.Number(1);
  return {state.Call("cuMemAlloc", state.driver.MemAlloc, &block.address, block.bytes)};
}

// handle NAME: the 64 bytes as hexadecimal digits.
Reply HandleOf(State& state, const Words& words) {
  cuda::CUipcMemHandle handle{};
  const CUresult result =
      state.Call("cuIpcGetMemHandle", state.driver.IpcGetMemHandle, &handle, state.blocks[words[0]].address);
  return {result, Hexadecimal(&handle, sizeof handle)};
}

// open NAME HANDLE BYTES: the value: its address.
Reply Open(State& state, const Words& words) {
  cuda::CUipcMemHandle handle{};
  FromHexadecimal(words[1], &handle, sizeof handle);
  Block& block = state.blocks[words[0]];
  block.bytes = block.mapped = words.Number(2);
  const CUresult result = state.Call("cuIpcOpenMemHandle", state.driver.IpcOpenMemHandle, &block.address, handle,
                                     cuda::kIpcMemLazyEnablePeerAccess);
  return {result, std::to_string(block.address)};
}

// second_context: makes one beside the primary one, and makes it current.
Reply SecondContext(State& state, const Words&) {
  using Make = CUresult(cuda::CUcontext*, unsigned int, cuda::CUdevice);
  auto* const make = reinterpret_cast<Make*>(state.Exported("cuCtxCreate_v2"));
  if (make == nullptr) return {cuda::CUDA_ERROR_NOT_FOUND, "no cuCtxCreate_v2"};
  cuda::CUcontext second = nullptr;
  return {state.Call("cuCtxCreate_v2", make, &second, 0u, 0)};
}

}  // namespace

void AddLegacyVerbs(Verbs& verbs) {
  verbs.insert({
      {"alloc", Alloc},
      {"handle", HandleOf},
      {"open", Open},
      {"second_context", SecondContext},
      {"free",
       [](State& state, const Words& words) -> Reply {
         return {state.Call("cuMemFree", state.driver.MemFree, state.blocks[words[0]].address)};
       }},
      {"close",
       [](State& state, const Words& words) -> Reply {
         return {state.Call("cuIpcCloseMemHandle", state.driver.IpcCloseMemHandle, state.blocks[words[0]].address)};
       }},
  });
}

}  // namespace arraybridge::experiments

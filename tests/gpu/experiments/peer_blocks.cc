// SPDX-License-Identifier: Apache-2.0
// Physical memory that is shared by a descriptor.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

constexpr uint64_t kPiece = uint64_t{16} << 20;  // bytes on the host at a time

// create NAME BYTES [private]
Reply Create(State& state, const Words& words) {
  Block& block = state.blocks[words[0]];
  block.bytes = words.Number(1);
  const auto properties = BlockProperties(words[2] != "private");
  return {state.Call("cuMemCreate", state.driver.MemCreate, &block.handle, block.bytes, &properties, 0)};
}

// export NAME: the answer contains the descriptor, which the peer closes with the next answer.
Reply Export(State& state, const Words& words) {
  Block& block = state.blocks[words[0]];
  int descriptor = -1;
  const CUresult result = state.Call("cuMemExportToShareableHandle", state.driver.MemExportToShareableHandle,
                                     &descriptor, block.handle, kDescriptor, 0);
  if (result != cuda::CUDA_SUCCESS) return {result};
  const int flags = ::fcntl(descriptor, F_GETFD);
  block.descriptor.reset(descriptor);
  return {result, (flags & FD_CLOEXEC) != 0 ? "close-on-exec" : "no close-on-exec", descriptor};
}

// import NAME BYTES: the descriptor of the message, or a kept one.
Reply Import(State& state, const Words& words) {
  Block& block = state.blocks[words[0]];
  if (state.received.valid()) block.descriptor = std::move(state.received);
  block.bytes = words.Number(1);
  auto* const shareable = reinterpret_cast<void*>(uintptr_t(block.descriptor.get()));
  const CUresult result = state.Call("cuMemImportFromShareableHandle", state.driver.MemImportFromShareableHandle,
                                     &block.handle, shareable, kDescriptor);
  block.descriptor.reset();
  return {result};
}

// describe NAME: flags, target in /proc and size of a kept descriptor.
Reply Describe(State& state, const Words& words) {
  const int descriptor = state.blocks[words[0]].descriptor.get();
  char target[256] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0) return {cuda::CUDA_ERROR_INVALID_VALUE};
  struct stat found {};
  ::fstat(descriptor, &found);
  return {cuda::CUDA_SUCCESS, Concat("F_GETFD ", ::fcntl(descriptor, F_GETFD), ", ", target, ", size ", found.st_size)};
}

// poll NAME MILLISECONDS
Reply Poll(State& state, const Words& words) {
  pollfd wanted{state.blocks[words[0]].descriptor.get(), POLLIN, 0};
  ::poll(&wanted, 1, static_cast<int>(words.Number(1)));
  return {cuda::CUDA_SUCCESS, std::to_string(wanted.revents)};
}

// map NAME rw|r|none [BYTES] [OFFSET]
Reply Map(State& state, const Words& words) {
  Block& block = state.blocks[words[0]];
  const auto access = words[1] == "rw"  ? cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                      : words[1] == "r" ? cuda::CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : cuda::CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return {MapBlock(state, block, words.Number(2, block.bytes), words.Number(3), access)};
}

// compare NAME SEED: the number of words that differ.
Reply Compare(State& state, const Words& words) {
  const Block& block = state.blocks[words[0]];
  const uint64_t seed = words.Number(1);
  uint64_t differing = 0;
  const CUresult result = CountDiffering(state, block.address, block.mapped, &seed, &differing);
  return {result, std::to_string(differing)};
}

// nonzero NAME: the number of words that are not 0.
Reply NonZero(State& state, const Words& words) {
  const Block& block = state.blocks[words[0]];
  uint64_t differing = 0;
  const CUresult result = CountDiffering(state, block.address, block.mapped, nullptr, &differing);
  return {result, std::to_string(differing)};
}

}  // namespace

cuda::CUmemAllocationProp BlockProperties(bool exportable) {
  cuda::CUmemAllocationProp properties{};
  properties.type = cuda::CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = exportable ? kDescriptor : cuda::CU_MEM_HANDLE_TYPE_NONE;
  properties.location = {cuda::CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

CUresult MapBlock(const State& state, Block& block, uint64_t bytes, uint64_t offset, cuda::CUmemAccess_flags access) {
  const auto no_hint = cuda::CUdeviceptr{0};
  CUresult result =
      state.Call("cuMemAddressReserve", state.driver.MemAddressReserve, &block.address, bytes, 0, no_hint, 0);
  if (result != cuda::CUDA_SUCCESS) return result;
  result = state.Call("cuMemMap", state.driver.MemMap, block.address, bytes, offset, block.handle, 0);
  if (result != cuda::CUDA_SUCCESS) {
    state.Call("cuMemAddressFree", state.driver.MemAddressFree, block.address, bytes);
    return result;
  }
  block.mapped = bytes;
  if (access == cuda::CU_MEM_ACCESS_FLAGS_PROT_NONE) return result;
  const cuda::CUmemAccessDesc description{{cuda::CU_MEM_LOCATION_TYPE_DEVICE, 0}, access};
  return state.Call("cuMemSetAccess", state.driver.MemSetAccess, block.address, bytes, &description, 1);
}

CUresult UnmapBlock(const State& state, Block& block) {
  const CUresult result = state.Call("cuMemUnmap", state.driver.MemUnmap, block.address, block.mapped);
  if (result != cuda::CUDA_SUCCESS) return result;
  return state.Call("cuMemAddressFree", state.driver.MemAddressFree, block.address, block.mapped);
}

CUresult FillRange(const State& state, cuda::CUdeviceptr address, uint64_t bytes, uint64_t seed) {
  std::vector<uint64_t> words(std::min(bytes, kPiece) / sizeof(uint64_t));
  for (uint64_t done = 0; done < bytes; done += kPiece) {
    for (uint64_t& word : words) word = seed++;
    const uint64_t now = std::min(bytes - done, kPiece);
    CUresult result =
        state.Call("cuMemcpyHtoDAsync", state.driver.MemcpyHtoDAsync, address + done, words.data(), now, state.stream);
    if (result == cuda::CUDA_SUCCESS) {
      result = state.Call("cuStreamSynchronize", state.driver.StreamSynchronize, state.stream);
    }
    if (result != cuda::CUDA_SUCCESS) return result;
  }
  return cuda::CUDA_SUCCESS;
}

CUresult CountDiffering(const State& state, cuda::CUdeviceptr address, uint64_t bytes, const uint64_t* seed,
                        uint64_t* differing) {
  uint64_t expected = seed == nullptr ? 0 : *seed;
  std::vector<uint64_t> words(std::min(bytes, kPiece) / sizeof(uint64_t));
  for (uint64_t done = 0; done < bytes; done += kPiece) {
    const uint64_t now = std::min(bytes - done, kPiece);
    CUresult result =
        state.Call("cuMemcpyDtoHAsync", state.driver.MemcpyDtoHAsync, words.data(), address + done, now, state.stream);
    if (result == cuda::CUDA_SUCCESS) {
      result = state.Call("cuStreamSynchronize", state.driver.StreamSynchronize, state.stream);
    }
    if (result != cuda::CUDA_SUCCESS) return result;
    for (uint64_t i = 0; i < now / sizeof(uint64_t); ++i) {
      *differing += words[i] != expected ? 1 : 0;
      if (seed != nullptr) ++expected;
    }
  }
  return cuda::CUDA_SUCCESS;
}

void AddBlockVerbs(Verbs& verbs) {
  verbs.insert({
      {"create", Create},
      {"export", Export},
      {"import", Import},
      {"describe", Describe},
      {"poll", Poll},
      {"map", Map},
      {"compare", Compare},
      {"nonzero", NonZero},
      {"keep",
       [](State& state, const Words& words) -> Reply {
         state.blocks[words[0]].descriptor = std::move(state.received);
         return {};
       }},
      {"give",
       [](State& state, const Words& words) -> Reply {
         return {cuda::CUDA_SUCCESS, "kept", state.blocks[words[0]].descriptor.get()};
       }},
      {"drop",
       [](State& state, const Words& words) -> Reply {
         state.blocks[words[0]].descriptor.reset();
         return {};
       }},
      {"access",
       [](State& state, const Words& words) -> Reply {
         const Block& block = state.blocks[words[0]];
         const auto access =
             words[1] == "rw" ? cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE : cuda::CU_MEM_ACCESS_FLAGS_PROT_READ;
         const cuda::CUmemAccessDesc description{{cuda::CU_MEM_LOCATION_TYPE_DEVICE, 0}, access};
         return {state.Call("cuMemSetAccess", state.driver.MemSetAccess, block.address, block.mapped, &description, 1)};
       }},
      {"unmap", [](State& state, const Words& words) -> Reply { return {UnmapBlock(state, state.blocks[words[0]])}; }},
      {"release",
       [](State& state, const Words& words) -> Reply {
         return {state.Call("cuMemRelease", state.driver.MemRelease, state.blocks[words[0]].handle)};
       }},
      {"fill",
       [](State& state, const Words& words) -> Reply {
         const Block& block = state.blocks[words[0]];
         return {FillRange(state, block.address, block.mapped, words.Number(1))};
       }},
      {"memset",
       [](State& state, const Words& words) -> Reply {
         const Block& block = state.blocks[words[0]];
         return {state.Call("cuMemsetD8Async", state.driver.MemsetD8Async, block.address,
                            static_cast<unsigned char>(words.Number(1)), block.mapped, state.stream)};
       }},
  });
}

}  // namespace arraybridge::experiments

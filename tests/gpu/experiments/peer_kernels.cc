// SPDX-License-Identifier: Apache-2.0
// A kernel that keeps a stream busy for a given time, and calls that are made while it runs.
#include <sys/mman.h>

#include <functional>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

constexpr char kSpin[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
  .reg .pred %more;
  .reg .u64 %limit, %begun, %now;
  ld.param.u64 %limit, [nanoseconds];
  mov.u64 %begun, %globaltimer;
next:
  nanosleep.u32 1000;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begun;
  setp.lt.u64 %more, %now, %limit;
  @%more bra next;
  ret;
}
)";

// Null if this driver loads no such kernel.
void* SpinOf(State& state) {
  using LoadData = CUresult(void** module, const void* text);
  using GetFunction = CUresult(void** function, void* module, const char* name);
  auto* const load = reinterpret_cast<LoadData*>(state.Exported("cuModuleLoadData"));
  auto* const find = reinterpret_cast<GetFunction*>(state.Exported("cuModuleGetFunction"));
  if (load == nullptr || find == nullptr) return nullptr;
  void* module = nullptr;
  void* function = nullptr;
  if (state.Call("cuModuleLoadData", load, &module, static_cast<const void*>(kSpin)) != cuda::CUDA_SUCCESS) {
    return nullptr;
  }
  const CUresult found = state.Call("cuModuleGetFunction", find, &function, module, "spin");
  return found == cuda::CUDA_SUCCESS ? function : nullptr;
}

// The calls of one `beside` command. Before each of them the stream has work that is not done.
class Beside {
 public:
  Beside(State& state, const Block* scratch, uint64_t busy_ms) : state_(state), scratch_(scratch), busy_ms_(busy_ms) {
    if (busy_ms_ != 0) result_ = state.driver.EventCreate(&ended_, cuda::kEventDisableTiming);
  }

  void Make(const char* what, const std::function<CUresult()>& call) {
    if (!Busy()) return;
    const auto begun = std::chrono::steady_clock::now();
    const CUresult made = call();
    const double us = MicrosecondsSince(begun);
    state_.recorder.Write(what, made, us);
    said_ += Concat(said_.empty() ? "" : ", ", what, " ", static_cast<uint64_t>(us), " us");
    if (made != cuda::CUDA_SUCCESS) said_ += Concat(" (error ", static_cast<uint32_t>(made), ")");
    if (busy_ms_ != 0 && state_.driver.EventQuery(ended_) == cuda::CUDA_SUCCESS)
      said_ += " (until the end of the work)";
  }
  Reply Finish() const { return {result_, said_}; }

 private:
  bool Busy() {
    if (busy_ms_ == 0) return true;
    if (began_ && state_.driver.EventQuery(ended_) == cuda::CUDA_ERROR_NOT_READY) return true;
    if (result_ == cuda::CUDA_SUCCESS) result_ = KeepBusyOn(state_, *scratch_, busy_ms_, state_.stream).result;
    if (result_ == cuda::CUDA_SUCCESS) result_ = state_.driver.EventRecord(ended_, state_.stream);
    began_ = true;
    return result_ == cuda::CUDA_SUCCESS;
  }

  State& state_;
  const Block* const scratch_;
  const uint64_t busy_ms_;
  cuda::CUevent ended_ = nullptr;
  bool began_ = false;
  CUresult result_ = cuda::CUDA_SUCCESS;
  std::string said_;
};

void VmmCalls(State& state, Beside& beside, uint64_t bytes) {
  const cuda::Driver& driver = state.driver;
  auto* const shareable = reinterpret_cast<void*>(uintptr_t(state.received.get()));
  const auto properties = BlockProperties();
  Block theirs;
  Block own;
  const auto map = [&](Block& block) {
    return MapBlock(state, block, bytes, 0, cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  };
  beside.Make("import", [&] { return driver.MemImportFromShareableHandle(&theirs.handle, shareable, kDescriptor); });
  beside.Make("map", [&] { return map(theirs); });
  beside.Make("unmap", [&] { return UnmapBlock(state, theirs); });
  beside.Make("release", [&] { return driver.MemRelease(theirs.handle); });
  beside.Make("create", [&] { return driver.MemCreate(&own.handle, bytes, &properties, 0); });
  beside.Make("map own", [&] { return map(own); });
  beside.Make("unmap own", [&] { return UnmapBlock(state, own); });
  beside.Make("release own", [&] { return driver.MemRelease(own.handle); });
}

// HANDLE and EVENT are of another process.
void OtherCalls(State& state, Beside& beside, uint64_t bytes, const std::string& handle, const std::string& event) {
  const cuda::Driver& driver = state.driver;
  cuda::CUipcMemHandle memory{};
  cuda::CUipcEventHandle events{};
  FromHexadecimal(handle, &memory, sizeof memory);
  FromHexadecimal(event, &events, sizeof events);
  cuda::CUdeviceptr address = 0;
  cuda::CUevent opened = nullptr;
  cuda::CUevent made = nullptr;
  size_t free = 0;
  size_t total = 0;
  beside.Make("cuMemAlloc", [&] { return driver.MemAlloc(&address, bytes); });
  beside.Make("cuMemFree", [&] { return driver.MemFree(address); });
  beside.Make("open memory",
              [&] { return driver.IpcOpenMemHandle(&address, memory, cuda::kIpcMemLazyEnablePeerAccess); });
  beside.Make("close memory", [&] { return driver.IpcCloseMemHandle(address); });
  beside.Make("open event", [&] { return driver.IpcOpenEventHandle(&opened, events); });
  beside.Make("query event", [&] { return driver.EventQuery(opened); });
  beside.Make("destroy event", [&] { return driver.EventDestroy(opened); });
  beside.Make("make event",
              [&] { return driver.EventCreate(&made, cuda::kEventInterprocess | cuda::kEventDisableTiming); });
  beside.Make("destroy own event", [&] { return driver.EventDestroy(made); });
  void* const host = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  beside.Make("register host memory", [&] { return driver.MemHostRegister(host, bytes, 0); });
  beside.Make("give it back", [&] { return driver.MemHostUnregister(host); });
  beside.Make("free memory", [&] { return driver.MemGetInfo(&free, &total); });
  ::munmap(host, bytes);
}

// beside BUSY_MS BYTES HANDLE EVENT: with a descriptor. The value: microseconds of each call.
Reply MakeBeside(State& state, const Words& words) {
  Beside beside(state, &state.blocks["scratch"], words.Number(0));
  VmmCalls(state, beside, words.Number(1));
  OtherCalls(state, beside, words.Number(1), words[2], words[3]);
  return beside.Finish();
}

}  // namespace

CUresult Spin(State& state, uint64_t milliseconds, cuda::CUstream stream) {
  using Launch =
      CUresult(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
               unsigned block_z, unsigned shared_bytes, cuda::CUstream stream, void** parameters, void** extra);
  if (!state.spin.has_value()) state.spin = SpinOf(state);
  auto* const launch = reinterpret_cast<Launch*>(state.Exported("cuLaunchKernel"));
  if (*state.spin == nullptr || launch == nullptr) return cuda::CUDA_ERROR_NOT_FOUND;
  uint64_t nanoseconds = milliseconds * 1'000'000;
  void* parameters[] = {&nanoseconds};
  return state.Call("cuLaunchKernel", launch, *state.spin, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                    static_cast<void**>(parameters), static_cast<void**>(nullptr));
}

void AddKernelVerbs(Verbs& verbs) { verbs.insert({{"beside", MakeBeside}}); }

}  // namespace arraybridge::experiments

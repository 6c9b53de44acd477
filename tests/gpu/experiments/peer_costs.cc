// SPDX-License-Identifier: Apache-2.0
// The cost of each call: many runs of it, and one line with p50 and p99.
#include <sys/mman.h>
#include <unistd.h>

#include <functional>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

constexpr double kBudgetUs = 400e3;  // per command: fewer runs if calls are slow

// Times of several steps, run by run, until one fails, `runs` are made or the budget is spent.
class Costs {
 public:
  Costs(const State& state, uint64_t bytes, uint64_t runs) : state_(state), bytes_(bytes), runs_(runs) {}
  bool More() {
    return result_ == cuda::CUDA_SUCCESS && done_++ < runs_ && (done_ < 4 || MicrosecondsSince(begun_) < kBudgetUs);
  }
  void Step(const std::string& name, const std::function<CUresult()>& call) {
    if (result_ != cuda::CUDA_SUCCESS) return;
    const auto begun = std::chrono::steady_clock::now();
    result_ = call();
    times_[name].push_back(MicrosecondsSince(begun));
    if (result_ != cuda::CUDA_SUCCESS) failed_ = name;
  }
  Reply Finish() {
    for (auto& [name, times] : times_) state_.recorder.WriteMany(name, bytes_, std::move(times));
    return {result_, failed_};
  }

 private:
  const State& state_;
  const uint64_t bytes_;
  const uint64_t runs_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  uint64_t done_ = 0;
  CUresult result_ = cuda::CUDA_SUCCESS;
  std::string failed_;
  std::map<std::string, std::vector<double>> times_;
};

void MapSteps(const cuda::Driver& driver, Costs& costs, Block& block, uint64_t bytes) {
  const cuda::CUmemAccessDesc description{{cuda::CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                          cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  costs.Step("cuMemAddressReserve", [&] { return driver.MemAddressReserve(&block.address, bytes, 0, 0, 0); });
  costs.Step("cuMemMap", [&] { return driver.MemMap(block.address, bytes, 0, block.handle, 0); });
  costs.Step("cuMemSetAccess", [&] { return driver.MemSetAccess(block.address, bytes, &description, 1); });
}

void UnmapSteps(const cuda::Driver& driver, Costs& costs, Block& block, uint64_t bytes) {
  costs.Step("cuMemUnmap", [&] { return driver.MemUnmap(block.address, bytes); });
  costs.Step("cuMemAddressFree", [&] { return driver.MemAddressFree(block.address, bytes); });
  costs.Step("cuMemRelease", [&] { return driver.MemRelease(block.handle); });
}

// costs_owner BYTES RUNS
Reply Owner(State& state, const Words& words) {
  const uint64_t bytes = words.Number(0);
  Costs costs(state, bytes, words.Number(1));
  const auto properties = BlockProperties();
  Block block;
  while (costs.More()) {
    int descriptor = -1;
    costs.Step("cuMemCreate", [&] { return state.driver.MemCreate(&block.handle, bytes, &properties, 0); });
    costs.Step("cuMemExportToShareableHandle",
               [&] { return state.driver.MemExportToShareableHandle(&descriptor, block.handle, kDescriptor, 0); });
    MapSteps(state.driver, costs, block, bytes);
    costs.Step("first touch", [&] {
      const CUresult queued = state.driver.MemsetD8Async(block.address, 1, bytes, state.stream);
      return queued == cuda::CUDA_SUCCESS ? state.driver.StreamSynchronize(state.stream) : queued;
    });
    UnmapSteps(state.driver, costs, block, bytes);
    if (descriptor >= 0) ::close(descriptor);
  }
  return costs.Finish();
}

// costs_borrower NAME BYTES RUNS: imports the attached descriptor repeatedly.
Reply Borrower(State& state, const Words& words) {
  const uint64_t bytes = words.Number(1);
  Costs costs(state, bytes, words.Number(2));
  auto* const shareable = reinterpret_cast<void*>(uintptr_t(state.received.get()));
  Block block;
  while (costs.More()) {
    costs.Step("cuMemImportFromShareableHandle",
               [&] { return state.driver.MemImportFromShareableHandle(&block.handle, shareable, kDescriptor); });
    MapSteps(state.driver, costs, block, bytes);
    UnmapSteps(state.driver, costs, block, bytes);
  }
  return costs.Finish();
}

// costs_legacy HANDLE BYTES RUNS: opens and closes it.
Reply Legacy(State& state, const Words& words) {
  cuda::CUipcMemHandle handle{};
  FromHexadecimal(words[0], &handle, sizeof handle);
  Costs costs(state, words.Number(1), words.Number(2));
  while (costs.More()) {
    cuda::CUdeviceptr address = 0;
    costs.Step("cuIpcOpenMemHandle",
               [&] { return state.driver.IpcOpenMemHandle(&address, handle, cuda::kIpcMemLazyEnablePeerAccess); });
    costs.Step("cuIpcCloseMemHandle", [&] { return state.driver.IpcCloseMemHandle(address); });
  }
  return costs.Finish();
}

// costs_events RUNS
Reply Events(State& state, const Words& words) {
  Costs costs(state, 0, words.Number(0));
  while (costs.More()) {
    cuda::CUevent event = nullptr;
    cuda::CUipcEventHandle handle{};
    costs.Step("cuEventCreate",
               [&] { return state.driver.EventCreate(&event, cuda::kEventInterprocess | cuda::kEventDisableTiming); });
    costs.Step("cuIpcGetEventHandle", [&] { return state.driver.IpcGetEventHandle(&handle, event); });
    costs.Step("cuEventRecord", [&] { return state.driver.EventRecord(event, state.stream); });
    costs.Step("cuStreamWaitEvent", [&] { return state.driver.StreamWaitEvent(state.stream, event, 0); });
    costs.Step("cuEventSynchronize", [&] { return state.driver.EventSynchronize(event); });
    costs.Step("cuEventDestroy", [&] { return state.driver.EventDestroy(event); });
  }
  return costs.Finish();
}

// costs_copies BYTES RUNS: device to device, and from the host, pinned and pageable; waits for each.
Reply Copies(State& state, const Words& words) {
  const uint64_t bytes = words.Number(0);
  const cuda::Driver& driver = state.driver;
  cuda::CUdeviceptr from = 0;
  cuda::CUdeviceptr to = 0;
  void* pinned = nullptr;
  CUresult made = driver.MemAlloc(&from, bytes);
  if (made == cuda::CUDA_SUCCESS) made = driver.MemAlloc(&to, bytes);
  if (made == cuda::CUDA_SUCCESS) made = driver.MemHostAlloc(&pinned, bytes, 0);
  if (made != cuda::CUDA_SUCCESS) return {made, "memory for it"};
  const std::vector<std::byte> pageable(bytes);
  const auto wait = [&](CUresult queued) {
    return queued == cuda::CUDA_SUCCESS ? driver.StreamSynchronize(state.stream) : queued;
  };
  Costs costs(state, bytes, words.Number(1));
  while (costs.More()) {
    costs.Step("copy D2D", [&] { return wait(driver.MemcpyDtoDAsync(to, from, bytes, state.stream)); });
    costs.Step("copy H2D pinned", [&] { return wait(driver.MemcpyHtoDAsync(to, pinned, bytes, state.stream)); });
    costs.Step("copy H2D pageable",
               [&] { return wait(driver.MemcpyHtoDAsync(to, pageable.data(), bytes, state.stream)); });
  }
  driver.MemFree(from);
  driver.MemFree(to);
  driver.MemFreeHost(pinned);
  return costs.Finish();
}

}  // namespace

void AddCostVerbs(Verbs& verbs) {
  verbs.insert({{"costs_owner", Owner},
                {"costs_borrower", Borrower},
                {"costs_legacy", Legacy},
                {"costs_events", Events},
                {"costs_copies", Copies}});
}

}  // namespace arraybridge::experiments

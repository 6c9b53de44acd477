// SPDX-License-Identifier: Apache-2.0
// The program of a peer. Each command is a verb and words, and is answered by "<CUresult> <value>". The director names
// the objects: `fill frame 7` writes into the block `frame`.
//
//   load · context · active · memory · devices · sync · harden no_new_privs|mdwe       peer_program.cc
//   create · export · import · keep · give · drop · describe · poll · map · access ·
//   unmap · release · fill · compare · memset · nonzero                                 peer_blocks.cc
//   alloc · free · handle · open · close · second_context                               peer_legacy.cc
//   event · event_handle · open_event · record · query · wait · await · destroy ·
//   busy · legacy_waits · copy · write_value · wait_value · events_until_refused       peer_events.cc
//   beside                                                                              peer_kernels.cc
//   bare                                                                                peer_bare.cc
//   capture                                                                             peer_capture.cc
//   symbols · attributes · pointer · hostile · garbage                                  peer_probe.cc
//   host_block                                                                          peer_host.cc
//   costs_owner · costs_borrower · costs_legacy · costs_events · costs_copies           peer_costs.cc
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/boundary/cuda/driver.h"
#include "proto/boundary/unique_fd.h"
#include "tests/gpu/experiments/record.h"

namespace arraybridge::experiments {

inline constexpr auto kDescriptor = cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct Reply {
  cuda::CUresult result = cuda::CUDA_SUCCESS;
  std::string value{};
  int descriptor = -1;  // sent along; the program keeps it
};

// Physical memory, and its mapping; each part may be missing.
struct Block {
  cuda::CUmemGenericAllocationHandle handle = 0;
  cuda::CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t mapped = 0;
  UniqueFd descriptor;
};

struct State {
  State(const std::string& experiment, const std::string& process, std::string path)
      : recorder(experiment, process), driver_path(std::move(path)) {}

  template <class Function, class... Arguments>
  cuda::CUresult Call(const char* symbol, Function* function, Arguments... arguments) const {
    return recorder.Call(symbol, function, arguments...);
  }
  // A function outside of the driver's table, by its exported name. Null: it does not exist.
  void* Exported(const char* name) const;

  const Recorder recorder;
  const std::string driver_path;
  cuda::Driver driver;
  cuda::CUcontext context = nullptr;
  cuda::CUstream stream = nullptr;
  std::optional<void*> spin;  // the kernel of Spin, once it was asked for
  std::map<std::string, Block> blocks;
  std::map<std::string, cuda::CUevent> events;
  UniqueFd received;  // arrived with the command
};

// Words of a command without the verb; missing ones are empty, or 0 as a number.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}
  std::string operator[](size_t index) const { return index < words_.size() ? words_[index] : std::string(); }
  uint64_t Number(size_t index, uint64_t otherwise = 0) const;

 private:
  std::vector<std::string> words_;
};

using Verbs = std::map<std::string, std::function<Reply(State&, const Words&)>>;

void AddBlockVerbs(Verbs& verbs);
void AddLegacyVerbs(Verbs& verbs);
void AddEventVerbs(Verbs& verbs);
void AddKernelVerbs(Verbs& verbs);
void AddBareVerbs(Verbs& verbs);
void AddCaptureVerbs(Verbs& verbs);
void AddProbeVerbs(Verbs& verbs);
void AddHostVerbs(Verbs& verbs);
void AddCostVerbs(Verbs& verbs);

// Runs until the director has ended. `words`: experiment, process, driver.
int RunPeer(const std::vector<std::string>& words);

// Shared by the verbs.
cuda::CUmemAllocationProp BlockProperties(bool exportable = true);
cuda::CUresult MapBlock(const State& state, Block& block, uint64_t bytes, uint64_t offset,
                        cuda::CUmemAccess_flags access);
cuda::CUresult UnmapBlock(const State& state, Block& block);
// Queues a kernel that takes so long. NOT_FOUND if this driver runs none.
cuda::CUresult Spin(State& state, uint64_t milliseconds, cuda::CUstream stream);
// Queues about this much work: a kernel, or copies of the block's first half over the second. The value: which.
Reply KeepBusyOn(State& state, const Block& scratch, uint64_t milliseconds, cuda::CUstream stream);
// Copies 64-bit counters from `seed` to the range, and waits.
cuda::CUresult FillRange(const State& state, cuda::CUdeviceptr address, uint64_t bytes, uint64_t seed);
// Counts the 64-bit words that differ from the counters from `seed`, or from 0 without a seed.
cuda::CUresult CountDiffering(const State& state, cuda::CUdeviceptr address, uint64_t bytes, const uint64_t* seed,
                              uint64_t* differing);
std::string Hexadecimal(const void* bytes, size_t size);
void FromHexadecimal(const std::string& text, void* bytes, size_t size);

}  // namespace arraybridge::experiments

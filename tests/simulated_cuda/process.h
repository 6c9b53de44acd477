// SPDX-License-Identifier: Apache-2.0
// The Process is the state of the driver in one process. The driver's interface consists of C functions without an
// object, so there is one Process, created by the first call and never destroyed, because the driver's threads may
// still run when the process ends.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proto/boundary/cuda/driver_abi.h"
#include "tests/simulated_cuda/address_space.h"
#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/config.h"
#include "tests/simulated_cuda/device.h"
#include "tests/simulated_cuda/event.h"
#include "tests/simulated_cuda/guests/abi.h"
#include "tests/simulated_cuda/guests/module.h"
#include "tests/simulated_cuda/host/host_ranges.h"
#include "tests/simulated_cuda/memory_block.h"
#include "tests/simulated_cuda/small_blocks.h"
#include "tests/simulated_cuda/stream.h"

namespace arraybridge::simulated {

struct Process {
  static Process& Get();

  std::mutex mutex;
  std::condition_variable changed;  // a stream has made progress
  const Config config = Config::Read();
  bool initialised = false;
  std::chrono::steady_clock::time_point paused_until;  // by simulated_cuda_pause
  std::atomic<bool> forked = false;
  cuda::CUresult sticky = cuda::CUDA_SUCCESS;
  uint64_t last_id = 0;
  std::mt19937_64 random{config.seed};
  std::map<std::string, long> calls;  // by symbol without version
  uint64_t work_done = 0;             // number of copies and fills that have run
  uint64_t kernels_done = 0;          // number of launches that have run

  DeviceTable devices{config};
  AddressSpace space;
  SmallBlocks small;
  std::map<uint64_t, std::shared_ptr<MemoryBlock>> handles;  // from cuMemCreate and imports
  HostRanges host;
  std::map<cuda::CUstream, std::shared_ptr<Stream>> streams;
  std::map<cuda::CUevent, std::shared_ptr<Event>> events;
  std::vector<std::shared_ptr<Stream>> draining;  // destroyed with queued work, which still runs when it is waited for
  std::set<const void*> destroyed;                // streams and events; using one ends the process
  std::map<CUmodule, std::shared_ptr<Module>> modules;  // and libraries
  std::map<CUlinkState, std::unique_ptr<std::string>> links;
  uint64_t recorded_while_imported = 0;
  EventFile event_file;
  Capture capture;

  uint64_t NextId() { return ++last_id; }
  bool Off(uint32_t attribute) const { return config.off.count(attribute) != 0; }
  bool IsPaused() const { return std::chrono::steady_clock::now() < paused_until; }
  // True if a query makes no progress.
  bool IsHeld() const { return config.held || IsPaused(); }
  // Ends the process if queued work uses these device addresses.
  void RefuseQueuedWork(const char* symbol, uint64_t base, uint64_t size);
  // All streams of a context, including the predefined ones and destroyed ones with work.
  std::vector<std::shared_ptr<Stream>> StreamsOf(const Context& context);
  std::vector<std::shared_ptr<Stream>> AllStreams();
  // Null if it is not a stream. A destroyed stream ends the process.
  std::shared_ptr<Stream> FindStream(const char* symbol, cuda::CUstream stream, Context* current);
  // Null if it is not an event. A destroyed event ends the process.
  std::shared_ptr<Event> FindEvent(const char* symbol, cuda::CUevent event) const;
  // Enqueues with the order that the legacy stream imposes.
  void Enqueue(const std::shared_ptr<Stream>& stream, Work work);
};

// kContextForMemory: a context if the configuration says so, otherwise kInit.
enum class Needs : uint8_t { kNothing, kInit, kContext, kContextForMemory };

// A Call is one call of a client: it is counted, may be made to fail, and holds the lock. `if (call.refused()) return
// call.refused();` comes first.
class Call {
 public:
  explicit Call(const char* symbol, Needs needs = Needs::kInit);

  cuda::CUresult refused() const { return refused_; }
  // Null if this thread has no current, live context.
  Context* context() const { return context_; }

  const char* const symbol;
  Process& process;
  Lock lock;

 private:
  cuda::CUresult Refusal(Needs needs);

  Context* context_ = nullptr;
  cuda::CUresult refused_ = cuda::CUDA_SUCCESS;
};

// True in a thread that runs a function of the client for a stream.
bool InHostFunction();

// Called before every call, without the driver's lock; null for none. A test aborts in it if it holds one of its own
// locks.
using Hook = void (*)(const char* symbol);

}  // namespace arraybridge::simulated

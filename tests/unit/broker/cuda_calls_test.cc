// SPDX-License-Identifier: Apache-2.0
// The Broker calls no driver with its lock held, because a call may take long and must not block other threads. The
// simulated driver reports every call before it happens, and another thread then calls the Broker.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <string>
#include <utility>

#include "daemon/memory/cuda/cuda_ipc_backend.h"
#include "daemon/memory/cuda/cuda_vmm_backend.h"
#include "tests/integration/build_tree.h"
#include "tests/simulated_cuda/driver_fixture.h"
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

// The Broker that the hook, a plain function, calls.
std::atomic<const Broker*> asked = nullptr;
std::map<std::string, int> calls;

void AskTheBroker(const char* symbol) {
  const Broker* const broker = asked.load();
  if (broker == nullptr) return;
  ++calls[symbol];
  auto answer = std::async(std::launch::async, [broker] { broker->TakeSnapshot(); });
  if (answer.wait_for(std::chrono::seconds(10)) == std::future_status::ready) return;
  std::fprintf(stderr, "%s was called with the Broker's lock held\n", symbol);
  std::abort();
}

class DriverCallsTest : public cuda::FreshDriverTest, public testing::WithParamInterface<HandleKind> {
 protected:
  // Everything that a Broker does with a block, from its allocation to its destruction.
  static void LiveAndDie(Broker& broker, HandleKind kind, const Device& gpu) {
    const auto open = [&] {
      Peer peer{.uid = 1000, .client = "test"};
      peer.kinds = {kind};
      return broker.OpenSession(std::move(peer))->session;
    };
    const SessionId writer = open();
    const SessionId reader = open();
    const auto arena = broker.Allocate(writer, {"default", gpu, cuda::kBlock});
    ASSERT_TRUE(arena.ok()) << arena.status().ToString();
    const Handle& handle = arena->handle;
    ASSERT_TRUE(broker.Mapped(writer, ArenaId{handle.arena}).ok());
    PublishCall call;
    call.ns = "default";
    call.name = "frame";
    call.arena = ArenaId{handle.arena};
    call.arena_generation = handle.generation;
    call.size = 256;
    ASSERT_TRUE(broker.Publish(writer, std::move(call)).ok());
    const ShareKey key{.name = "frame"};
    const auto acquired = broker.Acquire(reader, "default", {&key, 1}, true);
    ASSERT_TRUE(acquired.ok()) << acquired.status().ToString();
    ASSERT_TRUE(broker.Export(reader, ArenaId{handle.arena}, handle.generation).ok());
    const uint64_t lease = Number(acquired->shares.at(0).lease);
    ASSERT_TRUE(broker.Release(reader, {&lease, 1}, {}, {&handle.arena, 1}).ok());
    ASSERT_TRUE(broker.Withdraw(writer, "default", {&key, 1}).ok());
    ASSERT_TRUE(broker.Release(writer, {}, {&handle.arena, 1}, {}).ok());
    EXPECT_EQ(broker.Sweep(std::chrono::steady_clock::now()).freed_bytes, cuda::kBlock);
  }
};

TEST_P(DriverCallsTest, NoneIsMadeWithTheLockHeld) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "", 1);
    const auto gpus = FindCudaGpus(Built(SIMULATED_CUDA_LIBRARY), GpuTable{});
    ASSERT_TRUE(gpus.ok()) << gpus.status().ToString();
    const bool vmm = GetParam() == HandleKind::kCudaVmm;
    const auto backend = vmm ? MakeCudaVmmBackend(gpus->all) : MakeCudaIpcBackend(gpus->all);
    const Config config;
    Broker broker(config, {backend.get()});
    using Hook = void (*)(const char*);
    void* const library = ::dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
    reinterpret_cast<void (*)(Hook)>(::dlsym(library, "simulated_cuda_set_hook"))(AskTheBroker);
    asked = &broker;
    LiveAndDie(broker, GetParam(), gpus->all[0]->device());
    asked = nullptr;
    for (const char* made : vmm ? std::array{"cuMemCreate", "cuMemExportToShareableHandle", "cuMemRelease"}
                                : std::array{"cuMemAlloc_v2", "cuIpcGetMemHandle", "cuMemFree_v2"}) {
      EXPECT_GT(calls[made], 0) << made;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, DriverCallsTest, testing::Values(HandleKind::kCudaVmm, HandleKind::kCudaIpc),
                         [](const auto& kind) { return std::string(NameOf(kind.param)); });

}  // namespace
}  // namespace arraybridge::daemon

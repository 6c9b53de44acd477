// SPDX-License-Identifier: Apache-2.0
// Both GPU backends on the simulated driver: sizes, limits, failures and leaks. The conformance test checks what a
// borrower sees of a block.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "daemon/memory/cuda/cuda_ipc_backend.h"
#include "daemon/memory/cuda/cuda_vmm_backend.h"
#include "daemon/memory/cuda/device_nodes.h"
#include "tests/integration/build_tree.h"
#include "tests/simulated_cuda/driver_fixture.h"

namespace arraybridge::daemon {
namespace {

using cuda::Counter;
using cuda::kBlock;

struct Made {
  std::vector<std::shared_ptr<CudaGpu>> gpus;
  std::unique_ptr<MemoryBackend> backend;
};

GpuTable Percent(uint64_t percent) {
  GpuTable terms;
  terms.others.capacity_percent = percent;
  return terms;
}

Made Make(HandleKind kind, const std::string& machine, uint64_t percent = 90) {
  ::setenv("SIMULATED_CUDA", machine.c_str(), 1);
  auto gpus = FindCudaGpus(Built(SIMULATED_CUDA_LIBRARY), Percent(percent));
  EXPECT_TRUE(gpus.ok()) << gpus.status().ToString();
  Made made{gpus->all, nullptr};
  made.backend = kind == HandleKind::kCudaVmm ? MakeCudaVmmBackend(gpus->all) : MakeCudaIpcBackend(gpus->all);
  return made;
}

void ExpectNothingLeft() {
  for (const char* name : {"live_mappings", "live_allocations", "live_handles", "live_reservations", "live_streams",
                           "live_contexts", "bytes_used"}) {
    EXPECT_EQ(Counter(name), 0) << name;
  }
}

// Each test body runs in its own process, because each has its own simulated machine.
class CudaBackendTest : public cuda::FreshDriverTest, public ::testing::WithParamInterface<HandleKind> {};

TEST_P(CudaBackendTest, BlocksAreWholeUnitsAndAreFreedCompletely) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    {
      const Made made = Make(GetParam(), "devices=2;memory=67108864");
      const auto devices = made.backend->devices();
      ASSERT_EQ(devices.size(), 2u);
      EXPECT_EQ(devices[0].type, kDeviceCuda);
      EXPECT_EQ(devices[0].uuid.size(), 40u);
      EXPECT_NE(devices[0].uuid, devices[1].uuid);
      EXPECT_EQ(made.backend->Footprint(devices[1], 1), kBlock);
      EXPECT_EQ(made.backend->Footprint(devices[1], kBlock + 1), 2 * kBlock);
      EXPECT_EQ(made.backend->Footprint(devices[1], 0), 0u);
      EXPECT_EQ(made.backend->Footprint(devices[1], UINT64_MAX), 0u);
      auto block = made.backend->Allocate(devices[1], 3'000'000);
      ASSERT_TRUE(block.ok()) << block.status().ToString();
      EXPECT_EQ((*block)->size(), 2 * kBlock);
      EXPECT_EQ(made.backend->usage(devices[1]).allocated_bytes, 2 * kBlock);
      EXPECT_EQ(made.backend->usage(devices[0]).allocated_bytes, 0u);
      const auto handle = (*block)->Export(Access::kWrite);
      ASSERT_TRUE(handle.ok()) << handle.status().ToString();
      EXPECT_EQ(handle->kind, GetParam());
      EXPECT_EQ(handle->descriptor.valid(), GetParam() == HandleKind::kCudaVmm);
      EXPECT_EQ(handle->opaque.size(), GetParam() == HandleKind::kCudaIpc ? 64u : 0u);
      EXPECT_EQ(handle->device, devices[1]);
      EXPECT_EQ(*(*block)->Seal(), Immutability::kByContract);
    }
    ExpectNothingLeft();
  });
}

TEST_P(CudaBackendTest, NoContextIsMadeBeforeTheFirstBlock) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(GetParam(), "");
    EXPECT_EQ(Counter("live_contexts"), 0);
    ASSERT_TRUE(made.backend->Allocate(made.backend->devices()[0], 1).ok());
    EXPECT_EQ(Counter("live_contexts"), 1);
  });
}

TEST_P(CudaBackendTest, NoMoreIsHandedOutThanTheCapacityPercentage) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(GetParam(), "memory=20971520", 50);  // ten blocks, of which five may be used
    const Device device = made.backend->devices()[0];
    std::vector<std::unique_ptr<MemoryBlock>> blocks;
    for (int i = 0; i < 5; ++i) {
      auto block = made.backend->Allocate(device, kBlock);
      ASSERT_TRUE(block.ok()) << block.status().ToString();
      blocks.push_back(*std::move(block));
    }
    const auto refused = made.backend->Allocate(device, kBlock);
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
    EXPECT_EQ(refused.status().reason(), "DEVICE_FULL");
    blocks.pop_back();
    EXPECT_TRUE(made.backend->Allocate(device, kBlock).ok());
  });
}

// If any call fails, the error names it and nothing is leaked.
TEST_P(CudaBackendTest, EveryCallMayFail) {
  const std::vector<std::string> vmm = {"cuMemCreate", "cuMemExportToShareableHandle", "cuMemAddressReserve",
                                        "cuMemMap", "cuMemSetAccess"};
  const std::vector<std::string> both = {"cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemsetD8Async",
                                         "cuStreamSynchronize"};
  std::vector<std::string> symbols = GetParam() == HandleKind::kCudaVmm ? vmm : std::vector<std::string>{"cuMemAlloc"};
  symbols.insert(symbols.end(), both.begin(), both.end());
  for (const std::string& symbol : symbols) {
    SCOPED_TRACE(symbol);
    EXPECT_FINE_IN_FRESH_PROCESS({
      {
        const Made made = Make(GetParam(), "fail=" + symbol + ":1:2");
        const Device device = made.backend->devices()[0];
        const auto failed = made.backend->Allocate(device, kBlock);
        EXPECT_EQ(failed.status().code(), Code::kResourceExhausted) << failed.status().ToString();
        EXPECT_THAT(failed.status().message(), testing::HasSubstr(symbol));
        EXPECT_EQ(made.backend->usage(device).allocated_bytes, 0u);
        EXPECT_TRUE(made.backend->Allocate(device, kBlock).ok()) << "the next allocation succeeds";
      }
      ExpectNothingLeft();
    });
  }
}

TEST_P(CudaBackendTest, OnlyMemoryWithADescriptorIsAdopted) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    {
      const Made made = Make(GetParam(), "own;memory=67108864");
      const Device device = made.backend->devices()[0];
      {
        auto block = made.backend->Allocate(device, kBlock);
        ASSERT_TRUE(block.ok());
        const int stored = (*block)->descriptor();
        EXPECT_EQ(stored >= 0, GetParam() == HandleKind::kCudaVmm);
        auto adopted = made.backend->Adopt(device, kBlock, UniqueFd(::dup(stored)));
        if (GetParam() == HandleKind::kCudaIpc) {
          EXPECT_EQ(adopted.status().code(), Code::kUnimplemented);
          return;
        }
        ASSERT_TRUE(adopted.ok()) << adopted.status().ToString();
        EXPECT_EQ(made.backend->usage(device).allocated_bytes, 2 * kBlock) << "each is charged";
        block->reset();
        EXPECT_EQ((*adopted)->size(), kBlock);
        EXPECT_GE((*adopted)->descriptor(), 0) << "for the daemon after the next one";
        EXPECT_TRUE((*adopted)->Export(Access::kRead)->descriptor.valid());
      }
      const UniqueFd no_memory(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      EXPECT_FALSE(made.backend->Adopt(device, kBlock, UniqueFd(::dup(no_memory.get()))).ok());
      EXPECT_FALSE(made.backend->Adopt(device, kBlock + 1, UniqueFd(::dup(no_memory.get()))).ok());
    }
    ExpectNothingLeft();
  });
}

TEST(DeviceNodesTest, TheOpenNodesAreThoseWithANumber) {
  const std::string prefix = testing::TempDir() + "node" + std::to_string(::getpid()) + "_";
  std::vector<UniqueFd> open;
  for (const char* const name : {"7", "0", "ctl", "", "1x"}) {
    open.emplace_back(::open((prefix + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(open.back().valid());
    ::unlink((prefix + name).c_str());
  }
  EXPECT_THAT(OpenDeviceNodes(prefix), testing::IsEmpty()) << "the kernel marks a deleted file";
  open.emplace_back(::open((prefix + "12").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  open.emplace_back(::open((prefix + "ctl").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  open.emplace_back(::dup(open[open.size() - 2].get()));
  EXPECT_THAT(OpenDeviceNodes(prefix), testing::ElementsAre(12u));
  ::unlink((prefix + "12").c_str());
  ::unlink((prefix + "ctl").c_str());
}

TEST_P(CudaBackendTest, OnlyAGpuThatFailedPermanentlyIsOutOfService) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(GetParam(), "devices=2;fail=cuMemsetD8Async:1:700");
    const auto devices = made.backend->devices();
    EXPECT_EQ(made.backend->Allocate(devices[0], kBlock).status().code(), Code::kAborted);
    const auto later = made.backend->Allocate(devices[0], kBlock);
    EXPECT_EQ(later.status().code(), Code::kUnavailable);
    EXPECT_EQ(later.status().reason(), "DEVICE_LOST");
    EXPECT_TRUE(made.gpus[1]->CheckServing().ok());
  });
}

// A process that has opened a handle may outlive this process.
TEST_P(CudaBackendTest, MemoryThatOthersMayHaveOpenIsNotFreedAtExit) {
  const long kept = GetParam() == HandleKind::kCudaIpc ? 1 : 0;  // a descriptor keeps its own memory
  EXPECT_FINE_IN_FRESH_PROCESS({
    {
      const Made made = Make(GetParam(), "");
      const auto block = made.backend->Allocate(made.backend->devices()[0], kBlock);
      ASSERT_TRUE(block.ok()) << block.status().ToString();
      ASSERT_TRUE((*block)->Export(Access::kWrite).ok());
      made.gpus[0]->LeaveToTheDriver();
    }
    EXPECT_EQ(Counter("live_allocations"), kept);
    EXPECT_EQ(Counter("live_contexts"), 1);
    EXPECT_EQ(Counter("live_handles"), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaBackendTest, ::testing::Values(HandleKind::kCudaVmm, HandleKind::kCudaIpc),
                         [](const auto& kind) { return kind.param == HandleKind::kCudaVmm ? "Vmm" : "Ipc"; });

class CudaGpuTest : public cuda::FreshDriverTest {};

// Calls on memory that were made in a thread without a context.
std::vector<std::string> outside;
cuda::CUresult (*current_context)(cuda::CUcontext*) = nullptr;

void NoteCallsOutside(const char* symbol) {
  const std::string name = symbol;
  if (!name.starts_with("cuMemCreate") && !name.starts_with("cuMemExport") && !name.starts_with("cuMemImport")) return;
  cuda::CUcontext context = nullptr;
  if (current_context(&context) != cuda::CUDA_SUCCESS || context == nullptr) outside.push_back(name);
}

// Nothing says that a driver needs none for them, and the daemon has one for clearing in any case.
TEST_F(CudaGpuTest, ABlockIsMadeExportedAndAdoptedInsideAContext) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(HandleKind::kCudaVmm, "own");
    void* const library = ::dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
    current_context = made.gpus[0]->driver().CtxGetCurrent;
    reinterpret_cast<void (*)(void (*)(const char*))>(::dlsym(library, "simulated_cuda_set_hook"))(NoteCallsOutside);
    const Device device = made.backend->devices()[0];
    const auto block = made.backend->Allocate(device, kBlock);
    ASSERT_TRUE(block.ok()) << block.status().ToString();
    auto handle = (*block)->Export(Access::kWrite);
    ASSERT_TRUE(handle.ok()) << handle.status().ToString();
    const auto adopted = made.backend->Adopt(device, kBlock, std::move(handle->descriptor));
    ASSERT_TRUE(adopted.ok()) << adopted.status().ToString();
    EXPECT_THAT(outside, testing::IsEmpty());
  });
}

TEST_F(CudaGpuTest, AKindThatADeviceLacksIsRefusedWithAReason) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(HandleKind::kCudaVmm, "off=103");
    EXPECT_THAT(made.gpus[0]->refusals().vmm, testing::HasSubstr("descriptors"));
    EXPECT_TRUE(made.gpus[0]->refusals().ipc.empty());
    EXPECT_TRUE(made.backend->devices().empty());
    EXPECT_EQ(MakeCudaIpcBackend(made.gpus)->devices().size(), 1u);
  });
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(HandleKind::kCudaIpc, "off=125");
    EXPECT_FALSE(made.gpus[0]->refusals().ipc.empty());
    EXPECT_TRUE(made.backend->devices().empty());
  });
}

TEST_F(CudaGpuTest, AnIntegratedGpuIsSharedOnlyByDescriptors) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(HandleKind::kCudaIpc, "devices=2;integrated=1");
    EXPECT_EQ(made.gpus[0]->refusals().ipc, "");
    EXPECT_EQ(made.gpus[1]->refusals().ipc, "an integrated GPU does not support cudaIpcMemHandle");
    EXPECT_EQ(made.gpus[1]->refusals().vmm, "");
    ASSERT_EQ(made.backend->devices().size(), 1u);
    EXPECT_EQ(made.backend->devices()[0].id, 0);
    EXPECT_EQ(MakeCudaVmmBackend(made.gpus)->devices().size(), 2u);
  });
}

TEST_F(CudaGpuTest, ATegraIsRecognisedByItsDeviceTree) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "", 1);
    const std::string machine("nvidia,p3768-0000+p3767-0005\0nvidia,tegra234", 44);
    const auto gpus = FindCudaGpus(Built(SIMULATED_CUDA_LIBRARY), Percent(90), {"5.15.148-tegra", machine});
    ASSERT_TRUE(gpus.ok());
    EXPECT_EQ(gpus->all[0]->refusals().vmm, "");
    EXPECT_EQ(gpus->all[0]->refusals().ipc, "an integrated GPU does not support cudaIpcMemHandle");
  });
}

TEST_F(CudaGpuTest, UnderWsl2GpuMemoryIsNotShared) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "off=103", 1);
    const auto gpus = FindCudaGpus(Built(SIMULATED_CUDA_LIBRARY), Percent(90), {"5.15.153.1-microsoft-standard-WSL2"});
    ASSERT_TRUE(gpus.ok());
    EXPECT_EQ(gpus->all[0]->refusals().vmm, "the driver exports no descriptors (as under WSL2)");
    EXPECT_EQ(gpus->all[0]->refusals().ipc, "cudaIpcMemHandle is not reliable under WSL2");
    EXPECT_TRUE(MakeCudaIpcBackend(gpus->all)->devices().empty());
    EXPECT_TRUE(MakeCudaVmmBackend(gpus->all)->devices().empty());
  });
}

TEST_F(CudaGpuTest, ATableHoldsForOneGpu) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "devices=2;memory=67108864", 1);
    GpuTable terms;
    terms.own["GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01"] = {50, {HandleKind::kCudaIpc}};
    const auto gpus = FindCudaGpus(Built(SIMULATED_CUDA_LIBRARY), terms);
    ASSERT_TRUE(gpus.ok()) << gpus.status().ToString();
    EXPECT_EQ(gpus->all[0]->capacity()->bytes(), 53687091u) << "80 %";
    EXPECT_EQ(gpus->all[0]->refusals().vmm, "");
    EXPECT_EQ(gpus->all[1]->capacity()->bytes(), 33554432u);
    EXPECT_EQ(gpus->all[1]->refusals().vmm, "memory.cuda.kinds, or this GPU's own table, does not list it");
    EXPECT_EQ(gpus->all[1]->refusals().ipc, "");
  });
}

TEST_F(CudaGpuTest, AnInstanceOfAPartitionedGpuHasItsOwnUuid) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Made made = Make(HandleKind::kCudaVmm, "devices=2;mig=0,1;uuid=1:00112233445566778899aabbccddeeff");
    ASSERT_EQ(made.backend->devices().size(), 2u);
    EXPECT_EQ(made.backend->devices()[0].uuid, "MIG-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00");
    EXPECT_EQ(made.backend->devices()[1].uuid, "MIG-00112233-4455-6677-8899-aabbccddeeff");
  });
}

TEST_F(CudaGpuTest, ABrokenGpuIsReportedAndTheOthersServe) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "devices=3;fail=cuDeviceTotalMem:2:999", 1);
    const auto gpus = FindCudaGpus(Built(SIMULATED_CUDA_LIBRARY), Percent(90));
    ASSERT_TRUE(gpus.ok()) << gpus.status().ToString();
    ASSERT_EQ(gpus->all.size(), 2u);
    EXPECT_EQ(gpus->all[0]->device().id, 0);
    EXPECT_EQ(gpus->all[1]->device().id, 2) << "it keeps its ordinal";
    ASSERT_EQ(gpus->broken.size(), 1u);
    EXPECT_EQ(gpus->broken[0].device.id, 1);
    EXPECT_TRUE(gpus->broken[0].device.uuid.starts_with("GPU-")) << "the driver reported the UUID";
    EXPECT_TRUE(gpus->broken[0].why.message().starts_with("cuDeviceTotalMem")) << gpus->broken[0].why.ToString();
  });
}

TEST_F(CudaGpuTest, WithoutADriverTheErrorHasAReason) {
  const auto absent = FindCudaGpus("/nowhere/libcuda.so.1", Percent(90));
  EXPECT_EQ(absent.status().code(), Code::kUnavailable);
  EXPECT_EQ(absent.status().reason(), "CUDA_LIBRARY_ABSENT");
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "devices=0", 1);
    const auto none = FindCudaGpus(Built(SIMULATED_CUDA_LIBRARY), Percent(90));
    EXPECT_EQ(none.status().reason(), "CUDA_ERROR_NO_DEVICE") << none.status().ToString();
  });
}

}  // namespace
}  // namespace arraybridge::daemon

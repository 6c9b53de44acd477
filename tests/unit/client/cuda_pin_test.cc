// SPDX-License-Identifier: Apache-2.0
// Host memory that is registered with the simulated driver, which aborts if the registration ends under queued work.
#include "client/memory/cuda/cuda_pin.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "client/memory/cuda/cuda_vmm_mapper.h"
#include "client/memory/host/host_mapper.h"
#include "tests/unit/client/cuda_memory.h"

namespace arraybridge {
namespace {

constexpr uint64_t kBytes = 1 << 16;

class CudaPinTest : public cuda::FreshDriverTest {};

// A writable arena of host memory.
std::unique_ptr<Mapping> Arena() {
  Handle handle;
  handle.descriptor.reset(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  handle.arena = 1;
  handle.size = handle.arena_size = kBytes;
  EXPECT_EQ(::ftruncate(handle.descriptor.get(), kBytes), 0);
  auto mapping = MakeHostMapper()->Map(handle, Device{}, Access::kWrite);
  EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
  return *std::move(mapping);
}

bool IsMapped(const void* at) { return ::msync(const_cast<void*>(at), 4096, MS_ASYNC) == 0; }

// Queues a copy of the first bytes of the mapping to a GPU, on a stream that waits for no other.
void QueueCopyOf(const Mapping& mapping, const OnGpu& gpu) {
  const CudaDevices& devices = **CudaDevices::OfThisProcess();
  const auto inside = devices.Enter(0);
  const auto stream = devices.OwnStream(0);
  ASSERT_TRUE(stream.ok());
  const auto to = reinterpret_cast<cuda::CUdeviceptr>(gpu.data());
  ASSERT_EQ(devices.driver().MemcpyHtoDAsync(to, mapping.data(), 4096, *stream), cuda::CUDA_SUCCESS);
}

TEST_F(CudaPinTest, ItIsUnmappedAfterTheCopiesFromIt) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("devices=2", 4096);
    auto mapping = Arena();
    EXPECT_EQ(mapping->Now(), nullptr);
    const Status pinned = mapping->Pin();
    ASSERT_TRUE(pinned.ok()) << pinned.ToString();
    EXPECT_EQ(Counter("live_pinned"), 1);
    EXPECT_EQ(Counter("contexts_created"), 1) << "none on a GPU that is not used";
    std::memset(mapping->data(), 7, kBytes);
    QueueCopyOf(*mapping, gpu);
    const auto now = mapping->Now();
    ASSERT_NE(now, nullptr);
    const void* const at = mapping->data();
    mapping.reset();
    EXPECT_EQ(*now->Poll(), DeviceEvent::State::kPassed);
    EXPECT_EQ(Counter("live_pinned"), 0);
    EXPECT_FALSE(IsMapped(at));
    const auto copied = CopyToHeap(Bytes(gpu.data(), {kDeviceCuda, 0, {}}, 4096));
    EXPECT_EQ(*static_cast<const uint8_t*>(copied->data), 7);
  });
}

TEST_F(CudaPinTest, TheWorkOfEveryGpuIsWaitedFor) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("devices=2", 4096);
    auto mapping = Arena();
    ASSERT_TRUE(mapping->Pin().ok());
    const CudaDevices& devices = **CudaDevices::OfThisProcess();
    {
      const auto inside = devices.Enter(1);
      cuda::CUdeviceptr memory = 0;
      ASSERT_EQ(devices.driver().MemAlloc(&memory, 4096), cuda::CUDA_SUCCESS);
      const auto stream = devices.OwnStream(1);
      ASSERT_EQ(devices.driver().MemcpyHtoDAsync(memory, mapping->data(), 4096, *stream), cuda::CUDA_SUCCESS);
    }
    QueueCopyOf(*mapping, gpu);
    const auto now = mapping->Now();
    EXPECT_TRUE(now->Wait().ok());
    EXPECT_EQ(*now->Poll(), DeviceEvent::State::kPassed);
    mapping.reset();
    EXPECT_EQ(Counter("live_pinned"), 0);
  });
}

TEST_F(CudaPinTest, WhatIsIdleIsUnmappedAtOnce) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 4096);
    auto mapping = Arena();
    ASSERT_TRUE(mapping->Pin().ok());
    const long asked = Counter("cuCtxRecordEvent") + Counter("cuCtxSynchronize");
    mapping->NoteIdle();
    mapping.reset();
    EXPECT_EQ(Counter("cuCtxRecordEvent") + Counter("cuCtxSynchronize"), asked);
    EXPECT_EQ(Counter("live_pinned"), 0);
  });
}

TEST_F(CudaPinTest, ADriverThatRegistersNothingIsTold) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("fail=cuMemHostRegister:1:2", 4096);
    auto mapping = Arena();
    const Status refused = mapping->Pin();
    EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.ToString();
    EXPECT_NE(refused.message().find("cuMemHostRegister"), std::string::npos) << refused.ToString();
    EXPECT_EQ(mapping->Now(), nullptr);
    const void* const at = mapping->data();
    mapping.reset();
    EXPECT_FALSE(IsMapped(at));
  });
}

TEST_F(CudaPinTest, WhatTheDriverKeepsStaysMapped) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("fail=cuMemHostUnregister:1:1", 4096);
    auto mapping = Arena();
    ASSERT_TRUE(mapping->Pin().ok());
    const void* const at = mapping->data();
    mapping.reset();
    EXPECT_TRUE(IsMapped(at));
  });
}

TEST_F(CudaPinTest, AForkedChildLeavesTheRegistrationToItsParent) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 4096);
    auto mapping = Arena();
    ASSERT_TRUE(mapping->Pin().ok());
    const pid_t child = ::fork();
    if (child == 0) {
      const void* const at = mapping->data();
      mapping.reset();
      const bool mapped = IsMapped(at);  // before anything is allocated there
      ::_exit(Counter("cuMemHostUnregister") == 0 && !mapped ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    mapping.reset();
    EXPECT_EQ(Counter("live_pinned"), 0);
  });
}

TEST_F(CudaPinTest, MemoryOfAGpuIsNotPinned) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(HandleKind::kCudaVmm, "");
    const Handle handle = owner.Share();
    const auto mapping = MakeCudaVmmMapper(kLibrary)->Map(handle, handle.device, Access::kWrite);
    ASSERT_TRUE(mapping.ok()) << mapping.status().ToString();
    EXPECT_EQ((*mapping)->Pin().code(), Code::kUnimplemented);
  });
}

}  // namespace
}  // namespace arraybridge

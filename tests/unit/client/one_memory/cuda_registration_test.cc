// SPDX-License-Identifier: Apache-2.0
// Arenas of host memory that the simulated GPU reads where they lie.
#include "client/one_memory/cuda_registration.h"

#include <arraybridge/one_memory/one_memory.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "client/memory/host/host_mapper.h"
#include "tests/unit/client/cuda_memory.h"

namespace arraybridge {
namespace {

constexpr uint64_t kArenaBytes = 1 << 14;

class HostRegistrationTest : public cuda::FreshDriverTest {};

// An arena as a reader has it: sealed, and mapped read-only. Its bytes are `value`.
std::shared_ptr<ReadArena> ReadOnlyArena(uint8_t value) {
  auto arena = std::make_shared<ReadArena>();
  Handle& handle = arena->handle;
  handle.descriptor.reset(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  handle.arena = 1;
  handle.size = handle.arena_size = kArenaBytes;
  const std::vector<uint8_t> bytes(kArenaBytes, value);
  EXPECT_EQ(::write(handle.descriptor.get(), bytes.data(), kArenaBytes), static_cast<ssize_t>(kArenaBytes));
  EXPECT_EQ(::fcntl(handle.descriptor.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE), 0);
  auto mapping = MakeHostMapper()->Map(handle, Device{}, Access::kRead);
  EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
  arena->shared = *std::move(mapping);
  return arena;
}

Result<std::shared_ptr<HostRegistration>> RegisteredFor(int32_t ordinal, const std::shared_ptr<ReadArena>& arena) {
  return HostRegistration::Of(**CudaDevices::OfThisProcess(), ordinal, *arena);
}

// Ends those that nothing has used since `before`, as the arenas of a session are looked through.
void EndIdle(ReadArena& arena, std::chrono::steady_clock::time_point before = std::chrono::steady_clock::now()) {
  std::vector<std::shared_ptr<Mapping>> idle;
  arena.kept.TakeIdle(before, idle);
}

uint8_t FirstByteOn(const OnGpu& gpu, const Mapping& mapping) {
  View source = Bytes(mapping.data(), {kDeviceCuda, 0, {}}, 4096);
  EXPECT_TRUE(CopyOverDevice(source, gpu.data(), {kDeviceCuda, 0, {}}).ok());
  const auto copied = CopyToHeap(Bytes(gpu.data(), {kDeviceCuda, 0, {}}, 4096));
  return copied.ok() ? *static_cast<const uint8_t*>(copied->data) : 0;
}

TEST_F(HostRegistrationTest, AnArenaIsRegisteredWhileItIsUsedAndKeptForAWhile) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 4096);
    const auto arena = ReadOnlyArena(7);
    auto first = *RegisteredFor(0, arena);
    auto again = *RegisteredFor(0, arena);
    EXPECT_EQ(first, again);
    EXPECT_EQ(Counter("cuMemHostRegister"), 1);
    EXPECT_EQ(FirstByteOn(gpu, *first), 7);
    EXPECT_EQ(HostRegistration::HostAddressOf(0, first->data() + 5, 3), arena->shared->data() + 5);
    EXPECT_EQ(HostRegistration::HostAddressOf(0, first->data() + kArenaBytes - 1, 2), nullptr) << "beyond its end";
    EXPECT_EQ(HostRegistration::HostAddressOf(0, gpu.data(), 1), nullptr);
    const void* const address = first->data();
    first.reset();
    EndIdle(*arena);
    EXPECT_EQ(RegistrationsLiving(), 1u) << "it is used";
    again.reset();
    EndIdle(*arena, std::chrono::steady_clock::now() - std::chrono::minutes(1));
    EXPECT_TRUE(RegisteredFor(0, arena).ok());
    EXPECT_EQ(Counter("cuMemHostRegister"), 1) << "the next array finds it";
    EndIdle(*arena);
    EXPECT_EQ(RegistrationsLiving(), 0u);
    EXPECT_EQ(Counter("live_pinned"), 0);
    EXPECT_EQ(HostRegistration::HostAddressOf(0, address, 1), nullptr);
  });
}

TEST_F(HostRegistrationTest, TheMappingOfTheCpuIsNotRegistered) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 4096);
    const auto arena = ReadOnlyArena(7);
    const auto registration = *RegisteredFor(0, arena);
    const CudaDevices& devices = **CudaDevices::OfThisProcess();
    const auto inside = devices.Enter(0);
    uint32_t type = 0;
    const auto address = reinterpret_cast<cuda::CUdeviceptr>(arena->shared->data());
    EXPECT_EQ(devices.driver().PointerGetAttribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
              cuda::CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(HostRegistrationTest, EachGpuHasItsOwn) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("devices=2", 4096);
    const auto arena = ReadOnlyArena(7);
    const auto first = *RegisteredFor(0, arena);
    const auto second = *RegisteredFor(1, arena);
    EXPECT_NE(first, second);
    EXPECT_EQ(HostRegistration::HostAddressOf(1, second->data(), 1), arena->shared->data());
    EXPECT_EQ(HostRegistration::HostAddressOf(1, first->data(), 1), nullptr);
  });
}

TEST_F(HostRegistrationTest, NoMoreThanTheMaximum) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 4096);
    std::vector<std::shared_ptr<ReadArena>> living;
    for (uint64_t i = 0; i < kRegistrationsMax; ++i) {
      living.push_back(ReadOnlyArena(1));
      ASSERT_TRUE(RegisteredFor(0, living.back()).ok());
    }
    const auto one_more = ReadOnlyArena(2);
    const auto refused = RegisteredFor(0, one_more);
    EXPECT_EQ(refused.status().reason(), "TOO_MANY_REGISTRATIONS") << refused.status().ToString();
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
    living.pop_back();
    EXPECT_TRUE(RegisteredFor(0, one_more).ok());
  });
}

TEST_F(HostRegistrationTest, ADriverThatRefusesLeavesNothing) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("fail=cuMemHostGetDevicePointer:1:1;fail=cuMemHostRegister:2:2", 4096);
    const auto arena = ReadOnlyArena(7);
    EXPECT_NE(RegisteredFor(0, arena).status().message().find("cuMemHostGetDevicePointer"), std::string::npos);
    EXPECT_EQ(Counter("live_pinned"), 0);
    EXPECT_EQ(RegisteredFor(0, arena).status().code(), Code::kResourceExhausted);
    EXPECT_EQ(RegistrationsLiving(), 0u);
    EXPECT_TRUE(RegisteredFor(0, arena).ok());
  });
}

TEST_F(HostRegistrationTest, TheDriverKeepsItAndTheMemoryStaysMapped) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("fail=cuMemHostUnregister:1:999", 4096);
    const auto arena = ReadOnlyArena(7);
    auto registration = *RegisteredFor(0, arena);
    const std::byte* const address = registration->data();
    registration.reset();
    EndIdle(*arena);
    EXPECT_EQ(RegistrationsLiving(), 0u);
    const auto again = *RegisteredFor(0, arena);
    EXPECT_NE(again->data(), address) << "it is mapped elsewhere";
    EXPECT_EQ(FirstByteOn(gpu, *again), 7);
  });
}

TEST_F(HostRegistrationTest, AForkedChildEndsNone) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 4096);
    const auto arena = ReadOnlyArena(7);
    auto registration = *RegisteredFor(0, arena);
    const pid_t child = ::fork();
    if (child == 0) {
      registration.reset();
      EndIdle(*arena);
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(FirstByteOn(gpu, *registration), 7);
  });
}

struct Reached {
  const char* machine;
  HostReach::Kind kind;
  const char* why;
};

class HostReachTest : public cuda::FreshDriverTest, public ::testing::WithParamInterface<Reached> {};

TEST_P(HostReachTest, TheDriverSaysHowAGpuReachesHostMemory) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu(GetParam().machine, 4096);
    const auto reach = HostReachOf(0);
    ASSERT_TRUE(reach.ok());
    EXPECT_EQ(reach->kind, GetParam().kind);
    EXPECT_NE(reach->why.find(GetParam().why), std::string::npos) << reach->why;
    const bool refused = RegisteredFor(0, ReadOnlyArena(1)).status().reason() == "HOST_NOT_REACHED";
    EXPECT_EQ(refused, reach->kind == HostReach::Kind::kNone);
    EXPECT_EQ(HostReachOf(1).status().reason(), "DEVICE_NOT_VISIBLE");
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, HostReachTest,
    ::testing::Values(Reached{"one_memory=0", HostReach::Kind::kOneMemory, ""},
                      Reached{"integrated=0", HostReach::Kind::kOneMemory, ""},
                      Reached{"", HostReach::Kind::kMapped, ""},
                      Reached{"one_memory=0;off=100", HostReach::Kind::kMapped, ""},
                      Reached{"one_memory=0;off=19", HostReach::Kind::kNone, "maps no host memory"},
                      Reached{"one_memory=0;off=99", HostReach::Kind::kNone, "that it has not allocated"},
                      Reached{"one_memory=0;off=113", HostReach::Kind::kNone, "read-only"}));

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Device memory: the calls that the simulated driver refuses, and those that end the process because hardware leaves
// them undefined.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/simulated_cuda/driver_fixture.h"

namespace arraybridge::cuda {
namespace {

using AllocTest = DriverFixture;

TEST_F(AllocTest, FreshBytesAreNotZero) {
  CUdeviceptr address = 0;
  ASSERT_CUDA(driver_->MemAlloc(&address, kBlock));
  EXPECT_EQ(Read(address, 4), (std::vector<uint8_t>{0xCD, 0xCD, 0xCD, 0xCD}));
  ASSERT_CUDA(driver_->MemFree(address));
}

TEST_F(AllocTest, AFreedAddressIsReusedAtOnceWithAnotherHandle) {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CUipcMemHandle one{};
  CUipcMemHandle same{};
  CUipcMemHandle two{};
  ASSERT_CUDA(driver_->MemAlloc(&first, kBlock));
  ASSERT_CUDA(driver_->IpcGetMemHandle(&one, first));
  ASSERT_CUDA(driver_->IpcGetMemHandle(&same, first));
  ASSERT_CUDA(driver_->MemFree(first));
  ASSERT_CUDA(driver_->MemAlloc(&second, kBlock));
  ASSERT_CUDA(driver_->IpcGetMemHandle(&two, second));
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::memcmp(&one, &same, sizeof(one)), 0);
  EXPECT_NE(std::memcmp(&one, &two, sizeof(one)), 0);
  ASSERT_CUDA(driver_->MemFree(second));
}

TEST_F(AllocTest, SmallAllocationsShareABlock) {
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  ASSERT_CUDA(driver_->MemAlloc(&a, 1));
  ASSERT_CUDA(driver_->MemAlloc(&b, 600));
  EXPECT_EQ(b - a, 512u);
  EXPECT_EQ(Counter("bytes_used"), static_cast<long>(kBlock));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_CUDA(driver_->MemGetAddressRange(&base, &bytes, b + 599));
  EXPECT_EQ(base, b);
  EXPECT_EQ(bytes, 600u);
  EXPECT_EQ(driver_->MemGetAddressRange(&base, nullptr, b + 600), CUDA_ERROR_NOT_FOUND);
  ASSERT_CUDA(driver_->MemFree(a));
  ASSERT_CUDA(driver_->MemFree(b));
}

TEST_F(AllocTest, FreedBytesAreOverwritten) {
  CUdeviceptr neighbour = 0;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  ASSERT_CUDA(driver_->MemAlloc(&neighbour, 512));  // keeps the block alive
  ASSERT_CUDA(driver_->MemAlloc(&first, 512));
  ASSERT_CUDA(driver_->MemFree(first));
  ASSERT_CUDA(driver_->MemAlloc(&second, 512));
  EXPECT_EQ(first, second);
  EXPECT_EQ(Read(second, 2), (std::vector<uint8_t>{0xDD, 0xDD}));
  ASSERT_CUDA(driver_->MemFree(second));
  ASSERT_CUDA(driver_->MemFree(neighbour));
}

TEST_F(AllocTest, Refusals) {
  CUdeviceptr address = 0;
  CUipcMemHandle handle{};
  EXPECT_EQ(driver_->MemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->MemAlloc(&address, uint64_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_->MemAlloc(&address, UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CUDA(driver_->MemAlloc(&address, kBlock));
  EXPECT_EQ(driver_->MemFree(address + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->IpcGetMemHandle(&handle, address + 512), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(driver_->IpcGetMemHandle(&handle, address));
  CUdeviceptr opened = 0;
  EXPECT_EQ(driver_->IpcOpenMemHandle(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT) << "a handle of this process";
  EXPECT_EQ(driver_->IpcOpenMemHandle(&opened, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->IpcOpenMemHandle(&opened, CUipcMemHandle{}, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->IpcCloseMemHandle(address), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(driver_->CtxSetCurrent(nullptr));
  EXPECT_EQ(driver_->MemAlloc(&address, kBlock), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver_->MemFree(address), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver_->IpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver_->IpcCloseMemHandle(address), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CUDA(driver_->CtxSetCurrent(context_));
  ASSERT_CUDA(driver_->MemFree(address));
}

TEST_F(AllocTest, FreeMemoryIsTheRemainder) {
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  CUdeviceptr address = 0;
  ASSERT_CUDA(driver_->MemGetInfo(&before, &total));
  ASSERT_CUDA(driver_->MemAlloc(&address, kBlock + 1));
  ASSERT_CUDA(driver_->MemGetInfo(&after, &total));
  EXPECT_EQ(before - after, 2 * kBlock);
  EXPECT_EQ(total, uint64_t{256} << 20);
  ASSERT_CUDA(driver_->MemFree(address));
}

TEST_F(AllocTest, Violations) {
  CUdeviceptr address = 0;
  EXPECT_DEATH(
      {
        driver_->MemAlloc(&address, kBlock);
        driver_->MemFree(address);
        driver_->MemFree(address);
      },
      "VIOLATION in cuMemFree_v2: not the address of a live allocation");
  EXPECT_DEATH(
      {
        driver_->MemAlloc(&address, kBlock);
        driver_->MemsetD8Async(address, 1, 1, nullptr);
        driver_->MemFree(address);
      },
      "VIOLATION in cuMemFree_v2: queued work");
  EXPECT_DEATH(
      {
        driver_->MemAlloc(&address, kBlock);
        driver_->DevicePrimaryCtxRelease(0);
      },
      "VIOLATION in cuDevicePrimaryCtxRelease_v2: last release with live cuMemAlloc memory");
  EXPECT_DEATH(
      {
        driver_->MemsetD8Async(Mapped(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 1, 1, nullptr);
        driver_->DevicePrimaryCtxRelease(0);
      },
      "VIOLATION in cuDevicePrimaryCtxRelease_v2: last release with queued work");
}

TEST_F(AllocTest, AHostThatReadsADeviceAddressCrashes) {
  CUdeviceptr address = 0;
  ASSERT_CUDA(driver_->MemAlloc(&address, kBlock));
  EXPECT_EXIT(
      {
        ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit instead
        *reinterpret_cast<volatile char*>(address) = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
  ASSERT_CUDA(driver_->MemFree(address));
}

using VmmTest = DriverFixture;

TEST_F(VmmTest, MemoryNeedsNoContextAndMakesNone) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ASSERT_CUDA(driver_->DevicePrimaryCtxRelease(0));
    const long before = Counter("contexts_created");
    Unmap(Mapped(CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_EQ(Counter("contexts_created"), before);
    ASSERT_CUDA(driver_->DevicePrimaryCtxRetain(&context_, 0));
    EXPECT_EQ(Counter("contexts_created"), before + 1);
  });
}

TEST_F(VmmTest, PropertiesThatAreNotZeroedAreRefused) {
  CUmemGenericAllocationHandle handle = 0;
  size_t granularity = 0;
  const auto good = Properties();
  ASSERT_CUDA(driver_->MemGetAllocationGranularity(&granularity, &good, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(granularity, kBlock);
  const auto no_option = static_cast<CUmemAllocationGranularity_flags>(2);
  EXPECT_EQ(driver_->MemGetAllocationGranularity(&granularity, &good, no_option), CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp unknown{};
  EXPECT_EQ(driver_->MemGetAllocationPropertiesFromHandle(&unknown, 12345), CUDA_ERROR_INVALID_VALUE);
  auto bad = good;
  bad.allocFlags.reserved[3] = 1;
  EXPECT_EQ(driver_->MemCreate(&handle, kBlock, &bad, 0), CUDA_ERROR_INVALID_VALUE);
  bad = good;
  bad.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(2);
  EXPECT_EQ(driver_->MemCreate(&handle, kBlock, &bad, 0), CUDA_ERROR_INVALID_VALUE);
  bad.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(driver_->MemCreate(&handle, kBlock, &bad, 0), CUDA_ERROR_NOT_SUPPORTED);
  bad = Properties(2);
  EXPECT_EQ(driver_->MemCreate(&handle, kBlock, &bad, 0), CUDA_ERROR_INVALID_DEVICE);
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, kBlock + 1, UINT64_MAX}) {
    EXPECT_EQ(driver_->MemCreate(&handle, size, &good, 0), CUDA_ERROR_INVALID_VALUE) << size;
  }
  EXPECT_EQ(driver_->MemCreate(&handle, kBlock, &good, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->MemCreate(&handle, uint64_t{1} << 40, &good, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VmmTest, AMappingIsOfAWholeBlockInAReservation) {
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  const auto properties = Properties();
  ASSERT_CUDA(driver_->MemCreate(&handle, 2 * kBlock, &properties, 0));
  EXPECT_EQ(driver_->MemAddressReserve(&address, kBlock + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->MemAddressReserve(&address, kBlock, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->MemAddressReserve(&address, uint64_t{1} << 50, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CUDA(driver_->MemAddressReserve(&address, 4 * kBlock, 0, 0, 0));
  EXPECT_EQ(driver_->MemMap(address, kBlock, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "a prefix";
  EXPECT_EQ(driver_->MemMap(address, kBlock, kBlock, handle, 0), CUDA_ERROR_INVALID_VALUE) << "an offset";
  EXPECT_EQ(driver_->MemMap(address, 4 * kBlock, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "more than the block has";
  EXPECT_EQ(driver_->MemMap(address + 3 * kBlock, 2 * kBlock, 0, handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "beyond the end of the reservation";
  ASSERT_CUDA(driver_->MemMap(address, 2 * kBlock, 0, handle, 0));
  EXPECT_EQ(driver_->MemMap(address + kBlock, 2 * kBlock, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "mapped";
  ASSERT_CUDA(driver_->MemMap(address + 2 * kBlock, 2 * kBlock, 0, handle, 0)) << "a block may be mapped twice";
  EXPECT_EQ(driver_->MemUnmap(address, kBlock), CUDA_ERROR_INVALID_VALUE) << "a part";
  EXPECT_EQ(driver_->MemUnmap(address, 4 * kBlock), CUDA_ERROR_INVALID_VALUE) << "two";
  EXPECT_EQ(driver_->MemAddressFree(address, kBlock), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
  EXPECT_EQ(driver_->MemSetAccess(address, kBlock, &access, 1), CUDA_ERROR_INVALID_VALUE) << "a part";
  EXPECT_EQ(driver_->MemSetAccess(address, 4 * kBlock, &access, 1), CUDA_SUCCESS);
  access.location.id = 1;
  EXPECT_EQ(driver_->MemSetAccess(address, 4 * kBlock, &access, 1), CUDA_ERROR_INVALID_DEVICE) << "no peers";
  ASSERT_CUDA(driver_->MemUnmap(address, 2 * kBlock));
  ASSERT_CUDA(driver_->MemUnmap(address + 2 * kBlock, 2 * kBlock));
  ASSERT_CUDA(driver_->MemAddressFree(address, 4 * kBlock));
  ASSERT_CUDA(driver_->MemRelease(handle));
}

TEST_F(VmmTest, MemoryLivesWithItsMapping) {
  const CUdeviceptr address = Mapped(CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(Counter("live_handles"), 0);
  EXPECT_EQ(Counter("bytes_used"), static_cast<long>(kBlock));
  EXPECT_EQ(Read(address, 1)[0], 0xCD);
  Unmap(address);
}

TEST_F(VmmTest, ExportsAreFreshDescriptorsOfTheRequestedKind) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle imported = 0;
  auto properties = Properties();
  ASSERT_CUDA(driver_->MemCreate(&handle, kBlock, &properties, 0));
  int first = -1;
  int second = -1;
  constexpr auto kFd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ASSERT_CUDA(driver_->MemExportToShareableHandle(&first, handle, kFd, 0));
  ASSERT_CUDA(driver_->MemExportToShareableHandle(&second, handle, kFd, 0));
  EXPECT_NE(first, second);
  EXPECT_EQ(::fcntl(first, F_GETFD), 0) << "the caller sets close-on-exec";
  EXPECT_EQ(driver_->MemExportToShareableHandle(&second, handle, kFd, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->MemExportToShareableHandle(&second, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
            CUDA_ERROR_INVALID_VALUE);
  const auto import = [&](int descriptor) {
    return driver_->MemImportFromShareableHandle(&imported, reinterpret_cast<void*>(uintptr_t(descriptor)), kFd);
  };
  EXPECT_EQ(import(first), CUDA_ERROR_INVALID_VALUE) << "a descriptor of this process";
  EXPECT_EQ(import(STDERR_FILENO), CUDA_ERROR_INVALID_VALUE);
  const int memfd = ::memfd_create("foreign", 0);
  ASSERT_EQ(::ftruncate(memfd, 4 << 20), 0);
  EXPECT_EQ(import(memfd), CUDA_ERROR_INVALID_VALUE);
  ::close(memfd);
  EXPECT_EQ(import(memfd), CUDA_ERROR_INVALID_VALUE) << "closed";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  int third = -1;
  EXPECT_EQ(driver_->MemExportToShareableHandle(&third, handle, kFd, 0), CUDA_ERROR_OPERATING_SYSTEM);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ::close(first);
  ::close(second);
  ASSERT_CUDA(driver_->MemRelease(handle));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  ASSERT_CUDA(driver_->MemCreate(&handle, kBlock, &properties, 0));
  EXPECT_EQ(driver_->MemExportToShareableHandle(&first, handle, kFd, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(driver_->MemRelease(handle));
}

TEST_F(VmmTest, Violations) {
  EXPECT_DEATH(driver_->MemRelease(12345), "VIOLATION in cuMemRelease: unknown or already released");
  EXPECT_DEATH(driver_->MemAddressFree(Mapped(CU_MEM_ACCESS_FLAGS_PROT_READ), kBlock),
               "VIOLATION in cuMemAddressFree: still mapped");
  EXPECT_DEATH(
      {
        const CUdeviceptr address = Mapped(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        driver_->MemsetD8Async(address + 100, 1, 1, nullptr);
        driver_->MemUnmap(address, kBlock);
      },
      "VIOLATION in cuMemUnmap: queued work");
}

using PointerTest = DriverFixture;

TEST_F(PointerTest, AttributesDistinguishKinds) {
  CUdeviceptr alloc = 0;
  ASSERT_CUDA(driver_->MemAlloc(&alloc, kBlock));
  const CUdeviceptr vmm = Mapped(CU_MEM_ACCESS_FLAGS_PROT_READ);
  const auto attribute = [&](CUpointer_attribute which, CUdeviceptr address) {
    uint64_t value = 0;
    EXPECT_EQ(driver_->PointerGetAttribute(&value, which, address), CUDA_SUCCESS) << which;
    return value;
  };
  EXPECT_EQ(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, alloc + 5), 1u);
  EXPECT_EQ(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, vmm + 5), 0u);
  EXPECT_EQ(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, alloc), 0u);
  EXPECT_EQ(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, vmm), 1u);
  EXPECT_EQ(attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, vmm + 5), vmm);
  EXPECT_EQ(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, vmm + 5), kBlock);
  EXPECT_EQ(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, vmm), 2u);
  EXPECT_NE(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, vmm), attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, alloc));
  CUipcMemHandle handle{};
  EXPECT_EQ(driver_->IpcGetMemHandle(&handle, vmm), CUDA_ERROR_INVALID_VALUE) << "mapped memory has no such handle";
  int on_host = 0;
  uint64_t value = 1;
  const auto unknown = reinterpret_cast<CUdeviceptr>(&on_host);
  EXPECT_EQ(driver_->PointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_BUFFER_ID, unknown), CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID};
  void* values[] = {&value};
  EXPECT_EQ(driver_->PointerGetAttributes(1, attributes, values, unknown), CUDA_SUCCESS);
  EXPECT_EQ(value, 0u);
  Unmap(vmm);
  ASSERT_CUDA(driver_->MemFree(alloc));
}

using HostMemoryTest = DriverFixture;

TEST_F(HostMemoryTest, IsPinnedUntilItIsFreed) {
  void* memory = nullptr;
  ASSERT_CUDA(driver_->MemHostAlloc(&memory, 100, 0));
  std::memset(memory, 7, 100);
  uint32_t type = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  EXPECT_EQ(driver_->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_SUCCESS);
  EXPECT_EQ(type, uint32_t{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(driver_->MemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_CUDA(driver_->MemFreeHost(memory));
  EXPECT_EQ(driver_->MemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->MemHostAlloc(&memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostMemoryTest, AReadOnlyMappingIsRegisteredReadOnly) {
  constexpr size_t kBytes = 8192;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(driver_->MemHostRegister(memory, kBytes, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(driver_->MemHostRegister(memory, kBytes, kMemHostRegisterReadOnly));
  EXPECT_EQ(driver_->MemHostRegister(memory, 1, 8), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  ASSERT_CUDA(driver_->MemHostUnregister(memory));
  ASSERT_EQ(::munmap(memory, kBytes), 0);
  EXPECT_EQ(driver_->MemHostRegister(memory, kBytes, 8), CUDA_ERROR_INVALID_VALUE) << "not mapped";
}

TEST_F(HostMemoryTest, Violations) {
  static char registered[8192];
  const auto copy_from = [this](const void* source) {
    driver_->MemcpyHtoDAsync(Mapped(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), source, 1, nullptr);
  };
  EXPECT_DEATH(
      {
        void* memory = nullptr;
        driver_->MemHostAlloc(&memory, 100, 0);
        copy_from(memory);
        driver_->MemFreeHost(memory);
      },
      "VIOLATION in cuMemFreeHost: work is queued that may use it");
  EXPECT_DEATH(
      {
        driver_->MemHostRegister(registered, sizeof registered, 0);
        copy_from(registered);
        driver_->MemHostUnregister(registered);
      },
      "VIOLATION in cuMemHostUnregister: work is queued that may use it");
}

}  // namespace
}  // namespace arraybridge::cuda

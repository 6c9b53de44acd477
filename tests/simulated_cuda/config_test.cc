// SPDX-License-Identifier: Apache-2.0
// Simulated machines: visible devices, disabled features, failing calls, and objects that are left at the end.
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/boundary/cuda/driver_uuid.h"
#include "tests/integration/build_tree.h"
#include "tests/simulated_cuda/driver_fixture.h"
#include "tests/simulated_cuda/guests/loaded_calls.h"

namespace arraybridge::cuda {
namespace {

using ConfigTest = FreshDriverTest;

TEST_F(ConfigTest, OrdinalsArePerProcessAndUuidsAreGlobal) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("devices=3;visible=2,0;uuid=0:00112233445566778899aabbccddeeff");
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    int count = 0;
    ASSERT_CUDA(driver->DeviceGetCount(&count));
    EXPECT_EQ(count, 2);
    CUdevice device = -1;
    EXPECT_EQ(driver->DeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    CUuuid uuid{};
    ASSERT_CUDA(driver->DeviceGetUuid(&uuid, 0));
    EXPECT_EQ(uuid.bytes[0], 0x5A);
    EXPECT_EQ(uuid.bytes[15], 2) << "the physical device";
    ASSERT_CUDA(driver->DeviceGetUuid(&uuid, 1));
    EXPECT_EQ(uuid.bytes[1], 0x11);
    char name[6] = "xxxxx";
    ASSERT_CUDA(driver->DeviceGetName(name, 4, 0));
    EXPECT_STREQ(name, "Sim");
    EXPECT_EQ(name[4], 'x');
    EXPECT_EQ(driver->DeviceGetName(name, 0, 0), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(ConfigTest, AnIntegratedGpuHasNoLegacyHandles) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("devices=2;integrated=1");
    ASSERT_TRUE(driver.ok());
    for (const CUdevice device : {0, 1}) {
      int value = -1;
      ASSERT_CUDA(driver->DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_INTEGRATED, device));
      EXPECT_EQ(value, device);
      CUcontext context = nullptr;
      ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, device));
      ASSERT_CUDA(driver->CtxSetCurrent(context));
      CUdeviceptr memory = 0;
      ASSERT_CUDA(driver->MemAlloc(&memory, kBlock));
      CUipcMemHandle handle{};
      EXPECT_EQ(driver->IpcGetMemHandle(&handle, memory), device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    }
  });
}

TEST_F(ConfigTest, AnInstanceOfAPartitionedGpuIsRecognisedByItsName) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("devices=2;mig=1");
    ASSERT_TRUE(driver.ok());
    EXPECT_EQ(*UuidOf(*driver, 0), "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00");
    EXPECT_EQ(*UuidOf(*driver, 1), "MIG-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01");
  });
}

TEST_F(ConfigTest, DisabledFeaturesAreRefused) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("off=102,103,113,125");
    ASSERT_TRUE(driver.ok());
    int value = 1;
    ASSERT_CUDA(driver->DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    EXPECT_EQ(value, 0);
    ASSERT_CUDA(driver->DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
    EXPECT_EQ(value, 1);
    EXPECT_EQ(driver->DeviceGetAttribute(&value, static_cast<CUdevice_attribute>(92), 0), CUDA_ERROR_INVALID_VALUE)
        << "an attribute that this project does not read";
    CUmemGenericAllocationHandle handle = 0;
    const auto properties = Properties();
    EXPECT_EQ(driver->MemCreate(&handle, kBlock, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST_F(ConfigTest, WithoutInterprocessEventsNoHandleIsMadeOrOpened) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("off=125");
    ASSERT_TRUE(driver.ok());
    CUcontext context = nullptr;
    ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(driver->CtxSetCurrent(context));
    CUdeviceptr memory = 0;
    CUevent event = nullptr;
    ASSERT_CUDA(driver->MemAlloc(&memory, kBlock));
    ASSERT_CUDA(driver->EventCreate(&event, kEventInterprocess | kEventDisableTiming));
    CUipcMemHandle of_memory{};
    CUipcEventHandle of_event{};
    EXPECT_EQ(driver->IpcGetMemHandle(&of_memory, memory), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(driver->IpcGetEventHandle(&of_event, event), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(driver->IpcOpenEventHandle(&event, of_event), CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST_F(ConfigTest, PeersCanAccessEachOthersMemory) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("devices=2;peers");
    ASSERT_TRUE(driver.ok());
    int can = 0;
    ASSERT_CUDA(driver->DeviceCanAccessPeer(&can, 0, 1));
    EXPECT_EQ(can, 1);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    const auto properties = Properties();
    ASSERT_CUDA(driver->MemCreate(&handle, kBlock, &properties, 0));
    ASSERT_CUDA(driver->MemAddressReserve(&address, kBlock, 0, 0, 0));
    ASSERT_CUDA(driver->MemMap(address, kBlock, 0, handle, 0));
    const CUmemAccessDesc other{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    EXPECT_EQ(driver->MemSetAccess(address, kBlock, &other, 1), CUDA_SUCCESS);
  });
}

// As on hardware, by way of the host.
TEST_F(ConfigTest, BytesAreCopiedBetweenGpusThatCannotReachEachOther) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("devices=2");
    ASSERT_TRUE(driver.ok());
    CUcontext contexts[2] = {};
    CUdeviceptr blocks[2] = {};
    for (const int device : {0, 1}) {
      ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&contexts[device], device));
      ASSERT_CUDA(driver->CtxSetCurrent(contexts[device]));
      CUmemGenericAllocationHandle handle = 0;
      const auto properties = Properties(device);
      ASSERT_CUDA(driver->MemCreate(&handle, kBlock, &properties, 0));
      ASSERT_CUDA(driver->MemAddressReserve(&blocks[device], kBlock, 0, 0, 0));
      ASSERT_CUDA(driver->MemMap(blocks[device], kBlock, 0, handle, 0));
      const CUmemAccessDesc own{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      ASSERT_CUDA(driver->MemSetAccess(blocks[device], kBlock, &own, 1));
      ASSERT_CUDA(driver->MemsetD8Async(blocks[device], static_cast<unsigned char>(device + 1), kBlock, nullptr));
      ASSERT_CUDA(driver->CtxSynchronize());
    }
    const auto copy = GUEST(cuMemcpyPeerAsync);
    EXPECT_EQ(copy(blocks[1], contexts[1], blocks[0], nullptr, kBlock, nullptr), CUDA_ERROR_INVALID_CONTEXT);
    ASSERT_CUDA(copy(blocks[1], contexts[1], blocks[0], contexts[0], kBlock, nullptr));
    uint8_t seen = 0;
    ASSERT_CUDA(driver->MemcpyDtoHAsync(&seen, blocks[1] + kBlock - 1, 1, nullptr));
    ASSERT_CUDA(driver->CtxSynchronize());
    EXPECT_EQ(seen, 1);
  });
}

TEST_F(ConfigTest, ADirectoryThatCannotHoldEventsEndsTheProcess) {
  const auto share_an_event = [] {
    const auto driver = LoadWith("dir=/proc/no/such/folder");
    CUcontext context = nullptr;
    CUevent event = nullptr;
    CUipcEventHandle handle{};
    driver->DevicePrimaryCtxRetain(&context, 0);
    driver->CtxSetCurrent(context);
    driver->EventCreate(&event, kEventInterprocess | kEventDisableTiming);
    driver->IpcGetEventHandle(&handle, event);
  };
  EXPECT_DEATH(share_an_event(), "VIOLATION in EventFile: the configured directory cannot hold events");
}

TEST_F(ConfigTest, TheNthCallFails) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("fail=cuMemCreate:2:2;fail=cuMemFree:*:999");
    ASSERT_TRUE(driver.ok());
    CUmemGenericAllocationHandle handle = 0;
    const auto properties = Properties();
    for (const CUresult expected : {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS}) {
      EXPECT_EQ(driver->MemCreate(&handle, kBlock, &properties, 0), expected);
    }
    EXPECT_EQ(driver->MemFree(0), CUDA_ERROR_UNKNOWN) << "named without its version";
    EXPECT_EQ(Counter("cuMemCreate"), 3);
  });
}

TEST_F(ConfigTest, AFaultOfAnUnknownCallEndsTheProcess) {
  for (const char* const name : {"cuMemCraete", "cuMemFree_v2", ""}) {
    EXPECT_DEATH(LoadWith(Concat("fail=", name, ":1:2")), "is no call of this driver");
  }
}

TEST_F(ConfigTest, AnInjectedStickyErrorStays) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("fail=cuDeviceGetCount:2:719");
    ASSERT_TRUE(driver.ok());
    int count = 0;
    ASSERT_CUDA(driver->DeviceGetCount(&count));
    EXPECT_EQ(driver->DeviceGetCount(&count), CUDA_ERROR_LAUNCH_FAILED);
    CUdevice device = 0;
    EXPECT_EQ(driver->DeviceGet(&device, 0), CUDA_ERROR_LAUNCH_FAILED);
  });
}

TEST_F(ConfigTest, RandomFailuresAreReproducible) {
  const auto run = [](const char* seed) {
    const auto driver = LoadWith(std::string("fail=cuDeviceGetCount:1/4:999;seed=") + seed);
    std::string outcome;
    for (int i = 0; i < 100; ++i) {
      int count = 0;
      outcome += driver->DeviceGetCount(&count) == CUDA_SUCCESS ? '.' : 'x';
    }
    std::fprintf(stderr, "%s", outcome.c_str());
    std::exit(0);
  };
  EXPECT_EXIT(run("1"), ::testing::ExitedWithCode(0), "\\.x");
  EXPECT_EXIT(run("1"), ::testing::ExitedWithCode(0), "x\\.");
}

TEST_F(ConfigTest, TheAmountOfMemoryIsConfigured) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("memory=4194304;address_space=4194304");
    ASSERT_TRUE(driver.ok());
    CUmemGenericAllocationHandle handle = 0;
    const auto properties = Properties();
    EXPECT_EQ(driver->MemCreate(&handle, 3 * kBlock, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_CUDA(driver->MemCreate(&handle, kBlock, &properties, 0));
    EXPECT_EQ(driver->MemCreate(&handle, 2 * kBlock, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr address = 0;
    EXPECT_EQ(driver->MemAddressReserve(&address, 3 * kBlock, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_CUDA(driver->MemAddressReserve(&address, 2 * kBlock, 0, 0, 0));
    EXPECT_EQ(driver->MemAddressReserve(&address, kBlock, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST_F(ConfigTest, AnExclusiveDeviceHasOneProcess) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    std::string directory = ::testing::TempDir() + "/exclusiveXXXXXX";
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    const auto driver = LoadWith("exclusive;dir=" + directory);
    ASSERT_TRUE(driver.ok());
    int mode = 0;
    ASSERT_CUDA(driver->DeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
    EXPECT_EQ(mode, 3);
    // The lock that another process with the device holds.
    const int taken = ::open((directory + "/exclusive.0").c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(::flock(taken, LOCK_EX), 0);
    CUcontext context = nullptr;
    EXPECT_EQ(driver->DevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ::close(taken);
    ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(driver->DevicePrimaryCtxRelease(0));
    EXPECT_EQ(system(("rm -r " + directory).c_str()), 0);
  });
}

TEST_F(ConfigTest, WithoutTheVariableAFileBesideTheLibraryIsRead) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    std::string directory = ::testing::TempDir() + "/besideXXXXXX";
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    const std::string library = directory + "/libcuda.so.1";
    ASSERT_EQ(::symlink(Built(SIMULATED_CUDA_LIBRARY).c_str(), library.c_str()), 0);
    std::ofstream(library + ".conf") << "# a machine\ndevices=3\nversion=12040\n";
    ::unsetenv("SIMULATED_CUDA");
    const auto driver = Driver::Load(library);
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    EXPECT_EQ(driver->version, 12040);
    int count = 0;
    ASSERT_CUDA(driver->DeviceGetCount(&count));
    EXPECT_EQ(count, 3);
    EXPECT_EQ(system(("rm -r " + directory).c_str()), 0);
  });
}

TEST_F(ConfigTest, CallsDemandAContextAsSomeDriversDo) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("context_for_memory");
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle imported = 0;
    int descriptor = -1;
    int value = -1;
    const auto properties = Properties();
    constexpr auto kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUcontext context = nullptr;
    ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
    for (const CUcontext current : {CUcontext{nullptr}, context}) {
      ASSERT_CUDA(driver->CtxSetCurrent(current));
      const auto expected = [&](CUresult otherwise) {
        return current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : otherwise;
      };
      const auto pointer = reinterpret_cast<void*>(intptr_t{descriptor});
      EXPECT_EQ(driver->MemCreate(&handle, kBlock, &properties, 0), expected(CUDA_SUCCESS));
      EXPECT_EQ(driver->MemExportToShareableHandle(&descriptor, handle, kType, 0), expected(CUDA_SUCCESS));
      EXPECT_EQ(driver->MemImportFromShareableHandle(&imported, pointer, kType), expected(CUDA_ERROR_INVALID_VALUE));
      EXPECT_EQ(driver->PointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096),
                expected(CUDA_ERROR_INVALID_VALUE));
      EXPECT_EQ(driver->MemGetAddressRange(nullptr, nullptr, 4096), expected(CUDA_ERROR_NOT_FOUND));
    }
  });
}

// Ends the process with one live handle.
void LeaveAHandle(const std::string& config) {
  const auto driver = LoadWith(config);
  CUmemGenericAllocationHandle handle = 0;
  const auto properties = Properties();
  driver->MemCreate(&handle, kBlock, &properties, 0);
  std::exit(0);
}

TEST_F(ConfigTest, TheLedgerAbortsAProcessThatLeavesObjects) {
  EXPECT_EXIT(LeaveAHandle("ledger"), ::testing::KilledBySignal(SIGABRT), "ledger: live_handles=1");
  EXPECT_EXIT(LeaveAHandle(""), ::testing::ExitedWithCode(0), "");
}

TEST_F(ConfigTest, TheReportCountsCalls) {
  const std::string path = ::testing::TempDir() + "/report" + std::to_string(getpid());
  ::setenv("REPORT", path.c_str(), 0);  // the process of the statement has a different id
  EXPECT_EXIT(LeaveAHandle(std::string("report=") + std::getenv("REPORT")), ::testing::ExitedWithCode(0), "");
  std::ifstream file(std::getenv("REPORT"));
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("cuMemCreate=1\n"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("contexts_created=0\n"), std::string::npos) << text.str();
  ::unlink(path.c_str());
}

TEST_F(ConfigTest, AGuestMayLeaveObjectsInItsContext) {
  const auto leave = [](const char* config) {
    const auto driver = LoadWith(config);
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    driver->DevicePrimaryCtxRetain(&context, 0);
    driver->CtxSetCurrent(context);
    driver->MemAlloc(&address, kBlock);
    std::exit(static_cast<int>(driver->DevicePrimaryCtxRelease(0)));
  };
  EXPECT_EXIT(leave("guest"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(leave(""), ::testing::KilledBySignal(SIGABRT), "VIOLATION");
}

TEST_F(ConfigTest, AGuestsPageableSourceIsCopiedAtOnce) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("guest");
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(driver->CtxSetCurrent(context));
    ASSERT_CUDA(driver->MemAlloc(&address, kBlock));
    uint8_t byte = 1;
    ASSERT_CUDA(driver->MemcpyHtoDAsync(address, &byte, 1, nullptr));
    byte = 2;
    ASSERT_CUDA(driver->MemcpyDtoHAsync(&byte, address, 1, nullptr));
    ASSERT_CUDA(driver->StreamSynchronize(nullptr));
    EXPECT_EQ(byte, 1);
  });
}

std::string last_symbol;

TEST_F(ConfigTest, AHookSeesEveryCallBeforeItHappens) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("");
    void* library = ::dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
    using Hook = void (*)(const char*);
    const auto set = reinterpret_cast<void (*)(Hook)>(::dlsym(library, "simulated_cuda_set_hook"));
    set([](const char* symbol) { last_symbol = symbol; });
    int count = 0;
    ASSERT_CUDA(driver->DeviceGetCount(&count));
    EXPECT_EQ(last_symbol, "cuDeviceGetCount");
    set(nullptr);
  });
}

}  // namespace
}  // namespace arraybridge::cuda

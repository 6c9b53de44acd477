// SPDX-License-Identifier: Apache-2.0
// Tests every outcome of loading a driver, and the guard that restores contexts.
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "proto/boundary/cuda/driver_context.h"
#include "tests/integration/build_tree.h"
#include "tests/simulated_cuda/driver_fixture.h"

namespace arraybridge::cuda {
namespace {

struct Outcome {
  const char* config;
  const char* reason;
};

class DriverLoadTest : public FreshDriverTest, public ::testing::WithParamInterface<Outcome> {};

TEST_P(DriverLoadTest, TheErrorForAnUnusableDriverHasAReason) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith(GetParam().config);
    ASSERT_FALSE(driver.ok());
    EXPECT_EQ(driver.status().code(), Code::kUnavailable) << driver.status().ToString();
    EXPECT_EQ(driver.status().reason(), GetParam().reason) << driver.status().ToString();
  });
}

INSTANTIATE_TEST_SUITE_P(Outcomes, DriverLoadTest,
                         ::testing::Values(Outcome{"devices=0", "CUDA_ERROR_NO_DEVICE"},
                                           Outcome{"fail=cuDriverGetVersion:*:34", "CUDA_ERROR_STUB_LIBRARY"},
                                           Outcome{"fail=cuInit:1:34", "CUDA_ERROR_STUB_LIBRARY"},
                                           Outcome{"fail=cuInit:1:100", "CUDA_ERROR_NO_DEVICE"},
                                           Outcome{"fail=cuInit:1:803", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                                           Outcome{"fail=cuInit:1:999", "CUDA_ERROR_UNKNOWN"},
                                           Outcome{"version=11020", "CUDA_DRIVER_TOO_OLD"},
                                           Outcome{"fail=cuGetProcAddress:20:1", "CUDA_SYMBOL_MISSING"}));

using DriverLoadedTest = FreshDriverTest;

TEST_F(DriverLoadedTest, EveryCallIsFound) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("version=12080");
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    EXPECT_EQ(driver->version, 12080);
    EXPECT_NE(driver->CtxRecordEvent, nullptr);
    EXPECT_EQ(driver->StreamWriteValue64, nullptr) << "it is optional and not simulated";
    EXPECT_EQ(driver->NameOf(CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_EQ(driver->NameOf(static_cast<CUresult>(12345)), "CUDA_ERROR_12345");
  });
}

// Checks the exported name, and the base name and version that the Driver looks up.
void ExpectSimulated(const Driver& driver) {
  void* const library = dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
  int calls = 0;
#define AB_EXPECT_SIMULATED(name, version, suffix, need, parameters)                                         \
  EXPECT_NE(driver.name, nullptr) << "cu" #name;                                                             \
  EXPECT_EQ(reinterpret_cast<void*>(driver.name), dlsym(library, "cu" #name #suffix)) << "cu" #name #suffix; \
  ++calls;
  AB_DRIVER_CALLS(AB_EXPECT_SIMULATED)
#undef AB_EXPECT_SIMULATED
  EXPECT_GT(calls, 50);
}

TEST_F(DriverLoadedTest, EveryCallThatWeMakeIsSimulated) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("");
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    ExpectSimulated(*driver);
  });
}

TEST_F(DriverLoadedTest, AnOlderDriverLacksOnlyOptionalCalls) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("version=12000");
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    EXPECT_EQ(driver->CtxRecordEvent, nullptr);
    int value = 0;
    EXPECT_EQ(driver->DriverGetVersion(&value), CUDA_SUCCESS);
    EXPECT_EQ(value, 12000);
  });
}

TEST_F(DriverLoadedTest, TheInterfaceWith32BitSizesIsNotCalled) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("");
    ASSERT_TRUE(driver.ok());
    void* library = dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
    EXPECT_EQ(reinterpret_cast<void*>(driver->MemAlloc), dlsym(library, "cuMemAlloc_v2"));
    EXPECT_NE(reinterpret_cast<void*>(driver->MemAlloc), dlsym(library, "cuMemAlloc"));
  });
  EXPECT_DEATH(
      {
        const auto driver = LoadWith("");
        void* library = dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
        reinterpret_cast<void (*)()>(dlsym(library, "cuMemAlloc"))();
      },
      "VIOLATION in cuMemAlloc");
}

template <class Function>
Function Exported(const char* name) {
  return reinterpret_cast<Function>(::dlsym(::dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW), name));
}

TEST_F(DriverLoadedTest, BeforeInitialisationOnlyQueriesOfTheDriverSucceed) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "version=12000", 1);
    const auto init = Exported<CUresult (*)(unsigned)>("cuInit");
    const auto version = Exported<CUresult (*)(int*)>("cuDriverGetVersion");
    const auto count = Exported<CUresult (*)(int*)>("cuDeviceGetCount");
    int value = 0;
    EXPECT_EQ(version(&value), CUDA_SUCCESS);
    EXPECT_EQ(version(nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(count(&value), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(init(1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(count(&value), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(init(0), CUDA_SUCCESS);
    EXPECT_EQ(count(&value), CUDA_SUCCESS);
  });
}

TEST_F(DriverLoadedTest, ASymbolIsFoundByItsNameAndVersion) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    ::setenv("SIMULATED_CUDA", "version=12000", 1);
    const auto find = Exported<CUresult (*)(const char*, void**, int, uint64_t, CUdriverProcAddressQueryResult*)>(
        "cuGetProcAddress_v2");
    void* found = nullptr;
    CUdriverProcAddressQueryResult why{};
    EXPECT_EQ(find("cuMemAlloc", &found, 3020, 0, &why), CUDA_SUCCESS);
    EXPECT_EQ(found, Exported<void*>("cuMemAlloc_v2"));
    EXPECT_EQ(find("cuMemAlloc", &found, 2000, 0, &why), CUDA_SUCCESS);
    EXPECT_EQ(found, Exported<void*>("cuMemAlloc")) << "the old interface";
    EXPECT_EQ(find("cuMemCreate", &found, 3020, 0, &why), CUDA_SUCCESS);
    EXPECT_EQ(found, nullptr);
    EXPECT_EQ(why, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(find("cuNoSuchCall", &found, 3020, 0, &why), CUDA_SUCCESS);
    EXPECT_EQ(found, nullptr);
    EXPECT_EQ(why, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(find("cuMemAlloc", &found, 12010, 0, &why), CUDA_ERROR_INVALID_VALUE) << "above the driver's version";
  });
}

TEST_F(DriverLoadedTest, APrimaryContextIsReleasedAsOftenAsItWasRetained) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("");
    ASSERT_TRUE(driver.ok());
    CUcontext context = nullptr;
    EXPECT_EQ(driver->DevicePrimaryCtxRetain(&context, 1), CUDA_ERROR_INVALID_DEVICE);
    ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(driver->DevicePrimaryCtxRelease(0));
    EXPECT_EQ(driver->DevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(driver->CtxSetCurrent(context), CUDA_ERROR_INVALID_CONTEXT) << "it is destroyed";
  });
}

TEST_F(DriverLoadedTest, AForkedChildHasNoDriver) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("");
    ASSERT_TRUE(driver.ok());
    const pid_t child = fork();
    int count = 0;
    if (child == 0) _exit(driver->DeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST_F(DriverLoadedTest, AMisspeltKeyEndsTheProcess) {
  EXPECT_DEATH((void)LoadWith("devices=1;fial=cuInit:1:2"), "'fial': unknown key");
}

using ContextGuardTest = DriverFixture;

TEST_F(ContextGuardTest, ThePreviousContextIsCurrentAgain) {
  CUcontext other = nullptr;
  ASSERT_CUDA(driver_->DevicePrimaryCtxRetain(&other, 1));
  const auto current = [&] {
    CUcontext now = nullptr;
    EXPECT_EQ(driver_->CtxGetCurrent(&now), CUDA_SUCCESS);
    return now;
  };
  {
    auto outer = ContextGuard::Enter(*driver_, other);
    ASSERT_TRUE(outer.ok()) << outer.status().ToString();
    EXPECT_EQ(current(), other);
    {
      const auto inner = ContextGuard::Enter(*driver_, context_);
      ASSERT_TRUE(inner.ok());
      EXPECT_EQ(current(), context_);
    }
    EXPECT_EQ(current(), other);
    const ContextGuard moved = *std::move(outer);
    EXPECT_EQ(current(), other);
  }
  EXPECT_EQ(current(), context_);
  std::thread([&] {
    { const auto guard = ContextGuard::Enter(*driver_, other); }
    EXPECT_EQ(current(), nullptr) << "none was current on that thread";
  }).join();
  ASSERT_CUDA(driver_->DevicePrimaryCtxRelease(1));
  const auto dead = ContextGuard::Enter(*driver_, other);
  EXPECT_EQ(dead.status().code(), Code::kFailedPrecondition) << dead.status().ToString();
  EXPECT_EQ(current(), context_);
}

}  // namespace
}  // namespace arraybridge::cuda

// SPDX-License-Identifier: Apache-2.0
// Loads the simulated driver in a test: once per process, with a current primary context. A test that leaves objects
// behind fails. Bodies of death tests and of InFreshProcess run in a process of their own with its own driver.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "proto/boundary/cuda/driver.h"
#include "tests/integration/build_tree.h"

namespace arraybridge::cuda {

inline constexpr uint64_t kBlock = uint64_t{2} << 20;

// Loads the driver with this machine. REQUIRES: it is not loaded in this process.
inline Result<Driver> LoadWith(const std::string& config) {
  ::setenv("SIMULATED_CUDA", config.c_str(), 1);
  return Driver::Load(DriverUnderTest(SIMULATED_CUDA_LIBRARY));
}

// A counter of the loaded driver (ledger.cc). A real card's driver has no counters and returns 0, so comparisons with 0
// pass there and prove nothing.
inline long Counter(const char* name) {
  static const std::string path = DriverUnderTest(SIMULATED_CUDA_LIBRARY);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  auto* counter = reinterpret_cast<long (*)(const char*)>(::dlsym(library, "simulated_cuda_counter"));
  return counter == nullptr ? 0 : counter(name);
}

inline CUmemAllocationProp Properties(int device = 0) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

#define ASSERT_CUDA(call) ASSERT_EQ((call), arraybridge::cuda::CUDA_SUCCESS)

// Ends this process with the result of the test body.
template <class Body>
[[noreturn]] void ExitAfter(const Body& body) {
  body();
  std::exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
}
// Runs a block in a process of its own, which must end without a failure.
#define EXPECT_FINE_IN_FRESH_PROCESS(...) \
  EXPECT_EXIT(::arraybridge::cuda::ExitAfter([&]() __VA_ARGS__), ::testing::ExitedWithCode(EXIT_SUCCESS), "")

class FreshDriverTest : public ::testing::Test {
 protected:
  FreshDriverTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

class DriverFixture : public FreshDriverTest {
 protected:
  void SetUp() override {
    static Result<Driver> loaded = LoadWith("devices=2");
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    driver_ = &*loaded;
    ASSERT_CUDA(driver_->DevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CUDA(driver_->CtxSetCurrent(context_));
  }
  void TearDown() override {
    EXPECT_EQ(driver_->DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    for (const char* name : {"live_mappings", "live_allocations", "live_handles", "live_reservations", "live_streams",
                             "live_events", "live_pinned", "live_contexts", "bytes_used"}) {
      EXPECT_EQ(Counter(name), 0) << name;
    }
  }

  // Maps memory at a new address and releases its handle.
  CUdeviceptr Mapped(CUmemAccess_flags access, uint64_t size = kBlock) {
    CUmemGenericAllocationHandle handle = 0;
    const auto properties = Properties();
    EXPECT_EQ(driver_->MemCreate(&handle, size, &properties, 0), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_->MemAddressReserve(&address, size, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_->MemMap(address, size, 0, handle, 0), CUDA_SUCCESS);
    const CUmemAccessDesc description{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, access};
    EXPECT_EQ(driver_->MemSetAccess(address, size, &description, 1), CUDA_SUCCESS);
    EXPECT_EQ(driver_->MemRelease(handle), CUDA_SUCCESS);
    return address;
  }
  void Unmap(CUdeviceptr address, uint64_t size = kBlock) {
    EXPECT_EQ(driver_->MemUnmap(address, size), CUDA_SUCCESS);
    EXPECT_EQ(driver_->MemAddressFree(address, size), CUDA_SUCCESS);
  }
  // Reads the first bytes at `address` now.
  std::vector<uint8_t> Read(CUdeviceptr address, size_t bytes) {
    std::vector<uint8_t> host(bytes);
    CUstream stream = nullptr;
    EXPECT_EQ(driver_->StreamCreate(&stream, kStreamNonBlocking), CUDA_SUCCESS);
    EXPECT_EQ(driver_->MemcpyDtoHAsync(host.data(), address, bytes, stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_->StreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_->StreamDestroy(stream), CUDA_SUCCESS);
    return host;
  }

  const Driver* driver_ = nullptr;
  CUcontext context_ = nullptr;
};

}  // namespace arraybridge::cuda

// SPDX-License-Identifier: Apache-2.0
// The management library knows the machine that the driver's configuration describes.
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/integration/build_tree.h"

namespace arraybridge {
namespace {

class NvmlTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("SIMULATED_CUDA", "devices=3;visible=1;memory=1000;version=12040;uuid=2:00112233445566778899aabbccddeeff",
             1);
    library_ = ::dlopen(Built(SIMULATED_NVML_LIBRARY).c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
  }
  // Calls the function of this name.
  template <class... Arguments>
  static int Call(const char* name, Arguments... arguments) {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    return function == nullptr ? -1 : function(arguments...);
  }
  void SetUp() override { ASSERT_EQ(Call("nvmlInit_v2"), 0); }
  void TearDown() override { EXPECT_EQ(Call("nvmlShutdown"), 0); }

  static inline void* library_ = nullptr;
};

TEST_F(NvmlTest, ItCountsAllDevicesOfTheMachine) {
  unsigned int count = 0;
  ASSERT_EQ(Call("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 3U) << "also those that the driver hides from this process";
  void* device = nullptr;
  EXPECT_EQ(Call("nvmlDeviceGetHandleByIndex_v2", 3U, &device), 2) << "there is no such device";
  int version = 0;
  ASSERT_EQ(Call("nvmlSystemGetCudaDriverVersion_v2", &version), 0);
  EXPECT_EQ(version, 12040);
}

TEST_F(NvmlTest, ADeviceHasTheDriversNameAddressAndMemory) {
  void* device = nullptr;
  ASSERT_EQ(Call("nvmlDeviceGetHandleByIndex_v2", 2U, &device), 0);
  char text[64] = "";
  ASSERT_EQ(Call("nvmlDeviceGetUUID", device, &text[0], 64U), 0);
  EXPECT_STREQ(text, "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(Call("nvmlDeviceGetUUID", device, &text[0], 40U), 7) << "the text and its end do not fit";
  ASSERT_EQ(Call("nvmlDeviceGetName", device, &text[0], 64U), 0);
  EXPECT_STREQ(text, "Simulated GPU 2");
  unsigned long long memory[3] = {};
  ASSERT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory[0]), 0);
  EXPECT_EQ(memory[0], 1000U);
  void* found = nullptr;
  ASSERT_EQ(Call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>("0000:03:00.0"), &found), 0);
  EXPECT_EQ(found, device);
  ASSERT_EQ(
      Call("nvmlDeviceGetHandleByUUID", static_cast<const char*>("GPU-00112233-4455-6677-8899-aabbccddeeff"), &found),
      0);
  EXPECT_EQ(found, device);
  EXPECT_EQ(Call("nvmlDeviceGetHandleByUUID", static_cast<const char*>("GPU-0"), &found), 6);
}

TEST_F(NvmlTest, WhatItCannotKnowIsNotSupported) {
  void* device = nullptr;
  ASSERT_EQ(Call("nvmlDeviceGetHandleByIndex_v2", 0U, &device), 0);
  unsigned int state = 0;
  EXPECT_EQ(Call("nvmlDeviceGetNvLinkState", device, 0U, &state), 3);
  EXPECT_EQ(Call("nvmlDeviceGetPowerUsage", static_cast<void*>(nullptr), &state), 2) << "no device";
}

TEST_F(NvmlTest, NothingWorksBeforeItIsInitialised) {
  ASSERT_EQ(Call("nvmlShutdown"), 0);
  unsigned int count = 0;
  EXPECT_EQ(Call("nvmlDeviceGetCount_v2", &count), 1);
  ASSERT_EQ(Call("nvmlInit_v2"), 0);
}

}  // namespace
}  // namespace arraybridge

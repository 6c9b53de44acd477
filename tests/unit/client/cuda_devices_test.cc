// SPDX-License-Identifier: Apache-2.0
// How a client finds the CUDA driver library.
#include "client/memory/cuda/cuda_devices.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "tests/integration/build_tree.h"
#include "tests/unit/client/cuda_owner.h"

namespace arraybridge {
namespace {

constexpr char kPath[] = "LD_LIBRARY_PATH";  // read once, when the process starts

TEST(CudaDevicesTest, TheLibraryPathIsSearchedAgainAfterALibraryWasLoaded) {
  if (CudaDevices::Present("")) GTEST_SKIP() << "this machine has a CUDA driver";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::string folder = ::testing::TempDir() + "driver-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::setenv(kPath, folder.c_str(), 0), 0);  // the new process keeps its parent's value
  EXPECT_FINE_IN_FRESH_PROCESS({
    EXPECT_FALSE(CudaDevices::Present(""));
    const std::string driver = std::string(::getenv(kPath)) + "/libcuda.so.1";
    ASSERT_EQ(::symlink(Built(SIMULATED_CUDA_LIBRARY).c_str(), driver.c_str()), 0);
    EXPECT_FALSE(CudaDevices::Present(""));
    ASSERT_NE(::dlopen("libutil.so.1", RTLD_NOW), nullptr);
    EXPECT_TRUE(CudaDevices::Present(""));
    ::unlink(driver.c_str());
  });
  ::unsetenv(kPath);
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace arraybridge

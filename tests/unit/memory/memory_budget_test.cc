// SPDX-License-Identifier: Apache-2.0
// The budget is read from directories that look like /proc and /sys.
#include "daemon/memory/memory_budget.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace arraybridge::daemon {
namespace {

namespace fs = std::filesystem;

class MemoryBudgetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "budget-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void HasAvailable(uint64_t kib) {
    Write("proc/meminfo", "MemTotal:       99999999 kB\nMemAvailable:   " + std::to_string(kib) + " kB\n");
  }
  uint64_t Budget(uint32_t percent) { return MemoryBudget(root_, percent); }

  fs::path root_;
};

TEST_F(MemoryBudgetTest, IsZeroIfNothingCanBeRead) { EXPECT_EQ(Budget(50), 0u); }

TEST_F(MemoryBudgetTest, IsAPercentageOfTheAvailableMemory) {
  HasAvailable(1000);
  EXPECT_EQ(Budget(50), 512'000u);
  EXPECT_EQ(Budget(100), 1'024'000u);
  EXPECT_EQ(Budget(0), 0u);
}

TEST_F(MemoryBudgetTest, VersionTwoTakesTheLeastLimitUpToTheRoot) {
  HasAvailable(1 << 20);
  Write("proc/self/cgroup", "0::/system.slice/arraybridged.service\n");
  Write("sys/fs/cgroup/system.slice/arraybridged.service/memory.max", "max\n");
  Write("sys/fs/cgroup/system.slice/memory.max", "4000000\n");
  EXPECT_EQ(Budget(50), 2'000'000u);
  Write("sys/fs/cgroup/system.slice/arraybridged.service/memory.max", "1000000\n");
  EXPECT_EQ(Budget(50), 500'000u);
}

TEST_F(MemoryBudgetTest, VersionTwoInsideAContainerReadsTheMount) {
  HasAvailable(1 << 20);
  Write("proc/self/cgroup", "0::/../../not/to/be/seen/from/here\n");
  Write("sys/fs/cgroup/memory.max", "600000\n");
  EXPECT_EQ(Budget(50), 300'000u);
}

TEST_F(MemoryBudgetTest, VersionOneTakesTheMemoryHierarchy) {
  HasAvailable(1 << 20);
  Write("proc/self/cgroup", "3:cpu,cpuacct:/elsewhere\n5:hugetlb,memory:/job\n1:name=systemd:/init.scope\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "800000\n");
  Write("sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes", "8\n");  // another process's group
  EXPECT_EQ(Budget(50), 400'000u);
}

TEST_F(MemoryBudgetTest, AvailableBelowTheLimitWins) {
  HasAvailable(100);
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "600000000\n");
  EXPECT_EQ(Budget(100), 102'400u);
}

TEST_F(MemoryBudgetTest, GarbageIsNoLimit) {
  HasAvailable(100);
  Write("proc/self/cgroup", "no colons here\n::\n0:\n");
  Write("sys/fs/cgroup/memory.max", "lots\n");
  EXPECT_EQ(Budget(100), 102'400u);
}

TEST(MemoryBudgetOfThisMachine, IsThere) { EXPECT_GT(MemoryBudget(50), 0u); }

}  // namespace
}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// The heap memory of requests returns to the system after the requests have ended.
#include "daemon/service/reclaim/heap_trimmer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/service/verbs_fixture.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kUsed = 48 * kMiB;  // the least that a test uses
// the most of it that may remain: the allocator's own share, and the pauses between checks
constexpr uint64_t kLeft = 20 * kMiB;

uint64_t PrivateBytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"), std::fclose);
  unsigned long resident = 0;  // NOLINT(google-runtime-int): scanf's type
  unsigned long shared = 0;    // NOLINT(google-runtime-int)
  EXPECT_EQ(std::fscanf(file.get(), "%*u %lu %lu", &resident, &shared), 2);
  return (resident - shared) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void AwaitBelow(uint64_t bytes) {
  while (PrivateBytes() > bytes) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

class HeapTrimmerTest : public VerbsTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  }
};

TEST_F(HeapTrimmerTest, MemoryThatIsFreeBelowMemoryInUseIsGivenBack) {
  Worker worker("ab-test");
  HeapTrimmer heap(worker);
  const uint64_t before = PrivateBytes();
  std::vector<std::string> pieces;
  while (PrivateBytes() < before + kUsed) pieces.emplace_back(1000, 'x');
  const std::string above(1000, 'x');  // by itself the allocator returns only memory above the last block in use
  pieces.clear();
  heap.Freed();
  AwaitBelow(before + kLeft);
}

TEST_F(HeapTrimmerTest, SharesThatAreWithdrawnInALivingArenaGiveTheirMemoryBack) {
  config_.limits.shares_per_namespace = 1 << 17;
  const Caller maker = Open();
  const v1::Handle arena = Arena(maker, 32 * kMiB);
  const uint64_t before = PrivateBytes();
  uint64_t made = 0;
  for (; PrivateBytes() < before + kUsed; ++made) {
    ASSERT_TRUE(Publish(maker, arena, Concat("s", made), made * 256, 64, 500).ok());
  }
  for (uint64_t i = 0; i < made; ++i) Withdraw(maker, Concat("s", i));
  AwaitBelow(before + kLeft);
}

}  // namespace
}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// Hazard slots under stress: no stale word is ever read, and the same test detects one if a step of the protocol is
// left out. For a longer run: hazard_stress safe 100000000 3600 4.
#include <sched.h>

#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/integration/build_tree.h"
#include "tests/integration/process.h"

namespace arraybridge {
namespace {

std::map<std::string, std::string> Stress(std::vector<std::string> words) {
  words.insert(words.begin(), Built(HAZARD_STRESS));
  Process process(words);
  std::map<std::string, std::string> numbers;
  std::istringstream line(process.Line());
  for (std::string word; line >> word;) numbers[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  EXPECT_EQ(process.Wait(), 0);
  return numbers;
}

uint64_t Number(const std::map<std::string, std::string>& numbers, const std::string& name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : std::stoull(found->second);
}

bool HasSeveralCpus() {
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1;
}

TEST(HazardStressTest, NothingStaleIsRead) {
  std::map<std::string, std::string> numbers;
  const auto enough = [&] { return Number(numbers, "acquired") > 100000 && Number(numbers, "waited") > 0; };
  for (const char* const seconds : {"5", "60"}) {  // the second time if the machine has stalled in the first
    if (enough()) break;
    numbers = Stress({"safe", "1000000000", seconds, "3"});
    ASSERT_EQ(Number(numbers, "stale"), 0u);
    ASSERT_EQ(Number(numbers, "waiting"), 0u) << "withdrawals that met holders have ended";
  }
  EXPECT_TRUE(enough()) << "acquired: " << Number(numbers, "acquired")
                        << ", met holders: " << Number(numbers, "waited");
}

TEST(HazardStressTest, WithoutHoldsItIs) {
  EXPECT_GT(Number(Stress({"no_hold", "1000000000", "60", "3", "stop"}), "stale"), 0u);
}

// A load must overtake the store while the broker looks, which takes two CPUs. A call between the two gives the store
// enough time to become visible: Load and Store must be inline in every build.
TEST(HazardStressTest, WithoutTheFenceItIs) {
  if (!HasSeveralCpus()) GTEST_SKIP() << "one CPU sees its own stores in order";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer calls a function for each access, and so gives the store enough time";
#endif
  EXPECT_GT(Number(Stress({"no_fence", "1000000000", "120", "3", "stop"}), "stale"), 0u);
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Arrays that are born in broker memory under stress, beside processes that are killed. For a longer run set
// ARRAYBRIDGE_STORM_S to the seconds, also with the presets asan and tsan.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <arraybridge/broker.h>

#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

class BornStormTest : public DaemonTest {};

TEST_F(BornStormTest, NoShareChangesAndAllMemoryComesBack) {
  const char* const wish = std::getenv("ARRAYBRIDGE_STORM_S");
  const std::string seconds = wish == nullptr ? "4" : wish;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(seconds.c_str()));
  {
    Process storm({Built(BORN_STORM), directory_, seconds, "3"});
    while (std::chrono::steady_clock::now() < until) {
      Process beside({Built(BORN_STORM), directory_, "600", "2"});
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      beside.Kill();
    }
    const std::string line = storm.Line();
    EXPECT_EQ(line.rfind("published ", 0), 0u) << line;
    unsigned long long published = 0;
    unsigned long long born = 0;
    unsigned long long children = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "published %llu born %llu children %llu", &published, &born, &children), 3);
    EXPECT_GT(published, 20u) << line;
    EXPECT_GT(born, 20u) << line;
    EXPECT_GT(children, 1u) << line;
    EXPECT_EQ(storm.Wait(), 0);
  }
  Broker broker({.address = directory_});
  // Names of the processes that were killed stay; all that they held does not.
  const auto left = broker.List("storm-");
  ASSERT_TRUE(left.ok()) << left.status().ToString();
  for (const auto& listed : *left) static_cast<void>(broker.Withdraw({.name = listed.share.name}));
  Stats stats;
  for (int tries = 0; tries < 300; ++tries) {
    stats = *broker.GetStats();
    if (stats.arenas == 0 && stats.charged_bytes == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(stats.arenas, 0u);
  EXPECT_EQ(stats.charged_bytes, 0u);
}

}  // namespace
}  // namespace arraybridge

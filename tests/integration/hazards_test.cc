// SPDX-License-Identifier: Apache-2.0
// Shares that are found and held without requests, between real processes. A holder keeps the bytes. No slot is left
// after the last holder has released it, has ended, or was killed.
#include <signal.h>

#include <chrono>
#include <cstring>
#include <thread>

#include <arraybridge/broker.h>

#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kBytes = 400 * 256;  // the size of a share of this many elements
constexpr int kPatience = 10000;      // milliseconds, a watchdog

class HazardsTest : public DaemonTest {
 protected:
  explicit HazardsTest(std::vector<std::string> options = {}) : DaemonTest(std::move(options)) {}

  std::unique_ptr<Process> Client(std::vector<std::string> words) {
    words.insert(words.begin(), {Built(CLIENT_PROGRAM), directory_});
    return std::make_unique<Process>(words);
  }
  Broker::Options options(bool catalogue = true) const {
    return {.address = directory_, .timeout = seconds(30), .client = "test", .catalogue = catalogue};
  }

  static Status Put(Broker& broker, const std::string& name, uint8_t fill) {
    std::vector<uint8_t> content(kBytes, fill);
    View view;
    view.data = content.data();
    view.type = {1, 8, 1};
    view.dtype = "uint8";
    view.shape = {static_cast<int64_t>(kBytes)};
    view.strides = {1};
    auto placed = broker.Place({&view, 1});
    if (!placed.ok()) return placed.status();
    return broker.Publish(*placed, {.name = name, .replace = true}).status();
  }
  static bool Holds(const Acquired& array, uint8_t fill) {
    const std::vector<uint8_t> expected(kBytes, fill);
    const View& view = array.views[0];
    return view.nbytes() == kBytes && std::memcmp(view.data, expected.data(), kBytes) == 0;
  }
  // After this call the shares in the broker are acquired without requests.
  static void Meet(Broker& broker, const std::string& name) {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(broker.Acquire({.name = name}).ok());
  }
  static ::testing::AssertionResult Eventually(const std::function<bool()>& test) {
    for (int waited = 0; waited < kPatience; waited += 2) {
      if (test()) return ::testing::AssertionSuccess();
      std::this_thread::sleep_for(milliseconds(2));
    }
    return ::testing::AssertionFailure() << "never";
  }
};

TEST_F(HazardsTest, WhatIsThereIsAcquiredWithoutACall) {
  const auto writer = Client({"put", "frame", "42"});
  ASSERT_EQ(writer->Line(), "ok");
  const auto reader = Client({"hold", "frame", "42"});
  ASSERT_EQ(reader->Line(), "ok");
  Broker broker(options());
  Meet(broker, "frame");
  const auto before = broker.GetStats();
  for (int i = 0; i < 100; ++i) {
    const auto array = broker.Acquire({.name = "frame"});
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    EXPECT_EQ(array->share->name, "frame");
    EXPECT_EQ(array->share->id, broker.List()->at(0).share.id);
    EXPECT_EQ(array->share->arrays[0].dtype, "uint64");
  }
  EXPECT_EQ(broker.GetStats()->acquires_total, before->acquires_total);
  EXPECT_EQ(broker.client_stats().catalogue_acquires, 100u);
}

TEST_F(HazardsTest, BothWaysTellTheSame) {
  Broker broker(options());
  Broker calls(options(false));
  ASSERT_TRUE(Put(broker, "x", 3).ok());
  Meet(broker, "x");
  const auto held = broker.Acquire({.name = "x"});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(calls.Acquire({.name = "x"}).ok());
  const auto called = calls.Acquire({.name = "x"});
  ASSERT_TRUE(held.ok() && called.ok());
  EXPECT_EQ(broker.client_stats().catalogue_acquires, 1u);
  EXPECT_EQ(calls.client_stats().catalogue_acquires, 0u) << "the options forbid it";
  const Share& one = *held->share;
  const Share& other = *called->share;
  EXPECT_EQ(std::tie(one.id, one.broker_id, one.ns, one.name, one.generation, one.size),
            std::tie(other.id, other.broker_id, other.ns, other.name, other.generation, other.size));
  EXPECT_EQ(std::tie(one.immutability, one.structure, one.metadata, one.unnamed, one.kind),
            std::tie(other.immutability, other.structure, other.metadata, other.unnamed, other.kind));
  EXPECT_EQ(one.device, other.device);
  EXPECT_EQ(one.arrays[0].shape, other.arrays[0].shape);
  EXPECT_EQ(held->views[0].strides, called->views[0].strides);
}

TEST_F(HazardsTest, ARecordIsEnoughToDescribeAShare) {
  Broker writer(options());
  ASSERT_TRUE(Put(writer, "first", 1).ok());
  Broker broker(options());
  Meet(broker, "first");
  // Published after the catalogue existed, so no answer has described it to this reader.
  ASSERT_TRUE(Put(writer, "second", 2).ok());
  const auto before = writer.GetStats();
  const auto array = broker.Acquire({.name = "second"});
  ASSERT_TRUE(array.ok());
  EXPECT_TRUE(Holds(*array, 2));
  EXPECT_EQ(array->share->arrays[0].dtype, "uint8");
  EXPECT_FALSE(array->share->broker_id.empty());
  EXPECT_EQ(writer.GetStats()->acquires_total, before->acquires_total);
}

TEST_F(HazardsTest, TheNewestIsFoundAsSoonAsItIsPublished) {
  Broker writer(options());
  Broker reader(options());
  ASSERT_TRUE(Put(writer, "frame", 0).ok());
  Meet(reader, "frame");
  for (int round = 1; round < 200; ++round) {
    ASSERT_TRUE(Put(writer, "frame", static_cast<uint8_t>(round)).ok());
    const auto array = reader.Acquire({.name = "frame"});
    ASSERT_TRUE(array.ok());
    ASSERT_TRUE(Holds(*array, static_cast<uint8_t>(round))) << round;
  }
  EXPECT_GT(reader.client_stats().catalogue_acquires, 150u);
  EXPECT_LE(writer.client_stats().arena_bytes, 16u << 20) << "ranges that readers release are reused";
}

TEST_F(HazardsTest, WhatIsHeldStaysWhenItIsWithdrawn) {
  Broker writer(options());
  Broker reader(options());
  ASSERT_TRUE(Put(writer, "x", 1).ok());
  Meet(reader, "x");
  auto array = reader.Acquire({.name = "x"});
  auto again = reader.Acquire({.name = "x"});
  ASSERT_TRUE(array.ok() && again.ok());
  ASSERT_TRUE(reader.Flush().ok());
  EXPECT_EQ(writer.GetStats()->leases, 0u);
  EXPECT_EQ(writer.GetStats()->hazard_slots, 1u) << "one per share and process";
  ASSERT_TRUE(writer.Withdraw({.name = "x"}).ok());
  EXPECT_EQ(reader.Acquire({.name = "x"}).status().code(), Code::kNotFound);
  EXPECT_EQ(writer.GetStats()->pinned_bytes, kBytes);
  array->views.clear();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(writer, "other", 2).ok());
  EXPECT_TRUE(Holds(*again, 1));
  EXPECT_EQ(writer.GetStats()->pinned_bytes, kBytes);
  again->views.clear();
  EXPECT_TRUE(Eventually([&] { return writer.GetStats()->pinned_bytes == 0; }));
  EXPECT_EQ(writer.GetStats()->withdrawn_shares, 0u);
}

TEST_F(HazardsTest, WhoIsKilledHoldsNothing) {
  const auto writer = Client({"put", "frame", "7"});
  ASSERT_EQ(writer->Line(), "ok");
  const auto reader = Client({"hold", "frame", "7"});
  ASSERT_EQ(reader->Line(), "ok");
  Broker broker(options());
  EXPECT_TRUE(Eventually([&] { return broker.GetStats()->leases == 0; }));  // of the earlier attempts
  ASSERT_TRUE(broker.Withdraw({.name = "frame"}).ok());
  EXPECT_GT(broker.GetStats()->pinned_bytes, 0u);
  reader->Kill();
  EXPECT_TRUE(Eventually([&] { return broker.GetStats()->pinned_bytes == 0; }));
}

TEST_F(HazardsTest, AForkedChildTakesNothingFromItsParent) {
  const auto client = Client({"fork_held"});
  EXPECT_EQ(client->Wait(), 0) << client->Line();
}

TEST_F(HazardsTest, ACopyOnWriteViewIsHeldToo) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "x", 5).ok());
  Meet(broker, "x");
  auto array = broker.Acquire({.name = "x"}, {.mode = MapMode::kPrivate});
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(broker.client_stats().catalogue_acquires, 1u);
  *static_cast<uint8_t*>(array->views[0].data) = 99;
  EXPECT_TRUE(Holds(*broker.Acquire({.name = "x"}), 5)) << "a write stays with its writer";
}

TEST_F(HazardsTest, AnOldGenerationIsNotFound) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "x", 1).ok());
  Meet(broker, "x");
  const uint64_t generation = broker.Acquire({.name = "x"})->share->generation;
  EXPECT_TRUE(broker.Acquire({.name = "x", .generation = generation}).ok());
  ASSERT_TRUE(Put(broker, "x", 2).ok());
  EXPECT_EQ(broker.Acquire({.name = "x", .generation = generation}).status().code(), Code::kNotFound);
}

TEST_F(HazardsTest, ANamespaceThatComesAgainHasAnotherCatalogue) {
  Broker broker(options());
  for (int life = 1; life <= 3; ++life) {
    ASSERT_TRUE(Put(broker, "x", static_cast<uint8_t>(life)).ok());
    Meet(broker, "x");
    const uint64_t before = broker.client_stats().catalogue_acquires;
    EXPECT_TRUE(Holds(*broker.Acquire({.name = "x"}), static_cast<uint8_t>(life)));
    EXPECT_EQ(broker.client_stats().catalogue_acquires, before + 1);
    ASSERT_TRUE(broker.Withdraw({.name = "x"}).ok());
    EXPECT_TRUE(Eventually([&] { return broker.Flush().ok() && broker.GetStats()->charged_bytes == 0; }));
    EXPECT_EQ(broker.Acquire({.name = "x"}).status().code(), Code::kNotFound);
  }
}

TEST_F(HazardsTest, ArraysOutliveTheDaemonAndItsSuccessorIsMet) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "x", 1).ok());
  Meet(broker, "x");
  const auto held = broker.Acquire({.name = "x"});
  ASSERT_EQ(broker.client_stats().catalogue_acquires, 1u);
  daemon_->Kill();
  EXPECT_TRUE(Holds(*held, 1));
  EXPECT_TRUE(Eventually([&] { return broker.Acquire({.name = "x"}).status().code() == Code::kUnavailable; }))
      << "the catalogue of a daemon that has ended is not used";
  Start();
  EXPECT_EQ(broker.Acquire({.name = "x"}).status().code(), Code::kNotFound);
  ASSERT_TRUE(Put(broker, "x", 2).ok());
  Meet(broker, "x");
  EXPECT_TRUE(Holds(*broker.Acquire({.name = "x"}), 2));
  EXPECT_TRUE(Holds(*held, 1));
}

TEST_F(HazardsTest, MoreSharesThanAPageHasHolds) {
  Broker broker(options());
  constexpr int kMany = 520;  // a page holds 504
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(Put(broker, std::to_string(i), static_cast<uint8_t>(i)).ok());
  Meet(broker, "0");
  std::vector<Acquired> arrays;
  for (int i = 0; i < kMany; ++i) {
    // The first Acquire is a request. It registers the share, which is older than the catalogue.
    ASSERT_TRUE(broker.Acquire({.name = std::to_string(i)}).ok());
    auto array = broker.Acquire({.name = std::to_string(i)});
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    ASSERT_TRUE(Holds(*array, static_cast<uint8_t>(i)));
    arrays.push_back(*std::move(array));
  }
  EXPECT_EQ(broker.GetStats()->hazard_slots, 504u);
  arrays.clear();
  EXPECT_TRUE(Eventually([&] { return broker.GetStats()->leases == 0; }));
  EXPECT_EQ(broker.GetStats()->hazard_slots, 0u);
}

TEST_F(HazardsTest, ManyThreadsHoldAndLetGo) {
  Broker broker(options());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Put(broker, std::to_string(i), static_cast<uint8_t>(i)).ok());
  Meet(broker, "0");
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 2000; ++round) {
        const int which = (t + round) % 4;
        const auto array = broker.Acquire({.name = std::to_string(which)});
        ASSERT_TRUE(array.ok());
        ASSERT_EQ(*static_cast<const uint8_t*>(array->views[0].data), which);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(Eventually([&] {  // the reclaimer's thread may still be working
    const ClientStats stats = broker.client_stats();
    return stats.live_leases == 0 && stats.pending_releases == 0;
  }));
  EXPECT_EQ(broker.GetStats()->hazard_slots, 0u);
}

class PinnedTest : public HazardsTest {
 protected:
  PinnedTest() : HazardsTest({"--limit", "pinned_bytes_per_session=250000"}) {}
};

TEST_F(PinnedTest, WhoKeepsTooMuchFromOthersIsCut) {
  Broker writer(options());
  Broker modest(options());
  Broker greedy(options());
  ASSERT_TRUE(Put(writer, "x", 0).ok());
  Meet(modest, "x");
  Meet(greedy, "x");
  std::vector<Acquired> arrays;
  auto kept = modest.Acquire({.name = "x"});
  ASSERT_TRUE(kept.ok());
  // The third share that it keeps exceeds the limit of 250000 bytes. It sends no request afterwards, which would open a
  // new session.
  for (uint8_t i = 0; i < 3; ++i) {
    arrays.push_back(*greedy.Acquire({.name = "x"}));
    ASSERT_TRUE(Put(writer, "x", i).ok());
  }
  EXPECT_TRUE(Eventually([&] { return writer.GetStats()->sessions_cut_total == 1; }));
  EXPECT_TRUE(Eventually([&] { return writer.GetStats()->pinned_bytes == kBytes; }))
      << "the share that the modest session holds";
  EXPECT_TRUE(Holds(*kept, 0));
  EXPECT_EQ(writer.GetStats()->sessions, 2u);
}

}  // namespace
}  // namespace arraybridge

// Bytes put in one process and read in another, through a real arraybridged: told apart by content, not by success.
#include <cstring>
#include <thread>

#include <arraybridge/broker.h>

#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::seconds;

// Twice: shares are acquired without calls where that is possible, or never.
class TwoProcessesTest : public DaemonTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::unique_ptr<Process> Client(std::vector<std::string> words) {
    words.insert(words.begin(), {Built(CLIENT_PROGRAM), directory_});
    return std::make_unique<Process>(words);
  }
  Broker::Options options() const {
    return {.address = directory_, .timeout = seconds(30), .client = "test", .holds = GetParam()};
  }

  // A `bytes` long array of `fill`.
  static View Filled(std::vector<uint8_t>& bytes) {
    View view;
    view.data = bytes.data();
    view.type = {1, 8, 1};
    view.dtype = "uint8";
    view.shape = {static_cast<int64_t>(bytes.size())};
    view.strides = {1};
    return view;
  }
  static Result<Share> Put(Broker& broker, const std::string& name, size_t bytes, uint8_t fill,
                           Broker::PublishOptions options = {}) {
    std::vector<uint8_t> content(bytes, fill);
    const View view = Filled(content);
    auto placed = broker.Place({&view, 1}, options.sealed);
    if (!placed.ok()) return placed.status();
    options.name = name;
    return broker.Publish(*placed, options);
  }
  static bool Holds(const View& view, size_t bytes, uint8_t fill) {
    const std::vector<uint8_t> expected(bytes, fill);
    return view.nbytes() == bytes && std::memcmp(view.data, expected.data(), bytes) == 0;
  }
};

TEST_P(TwoProcessesTest, BytesPutInOneAreReadInAnother) {
  const auto reader_that_waits = Client({"get", "frame", "42"});
  const auto writer = Client({"put", "frame", "42"});
  EXPECT_EQ(writer->Line(), "ok");
  EXPECT_EQ(reader_that_waits->Line(), "ok");
  const auto private_reader = Client({"get_private", "frame", "42"});
  EXPECT_EQ(private_reader->Line(), "ok");
  const auto wrong = Client({"get", "frame", "43"});
  EXPECT_EQ(wrong->Line(), "INTERNAL: word 0 differs") << "the check can fail";
  EXPECT_EQ(writer->Wait(), 0);
  const auto after_the_writer = Client({"get", "frame", "42"});
  EXPECT_EQ(after_the_writer->Line(), "ok");
}

TEST_P(TwoProcessesTest, AForkedChildHasItsOwnSession) {
  const auto client = Client({"fork"});
  EXPECT_EQ(client->Wait(), 0) << client->Line();
}

TEST_P(TwoProcessesTest, AProcessMayEndWithLiveArrays) { EXPECT_EQ(Client({"leave"})->Wait(), 0); }

TEST_P(TwoProcessesTest, ArraysOutliveTheDaemonAndTheNextCallReconnects) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "old", 100000, 7).ok());
  auto shared = broker.Acquire({.name = "old"});
  auto mine = broker.Acquire({.name = "old"}, {.mode = MapMode::kPrivate});
  ASSERT_TRUE(shared.ok() && mine.ok());
  daemon_->Kill();
  EXPECT_TRUE(Holds(shared->views[0], 100000, 7));
  EXPECT_TRUE(Holds(mine->views[0], 100000, 7));
  EXPECT_EQ(broker.GetStats().status().code(), Code::kUnavailable);
  Start();
  const auto lost = broker.Acquire({.name = "old"});
  EXPECT_EQ(lost.status().code(), Code::kNotFound) << lost.status().ToString();
  auto share = Put(broker, "new", 1000, 8);
  ASSERT_TRUE(share.ok()) << share.status().ToString();
  EXPECT_NE(share->broker_id, shared->share->broker_id);
  EXPECT_TRUE(Holds(shared->views[0], 100000, 7));
  shared->views.clear();
  mine->views.clear();
  EXPECT_TRUE(broker.Flush().ok());
  EXPECT_EQ(broker.GetStats()->leases, 0u);
}

TEST_P(TwoProcessesTest, APlacementOfALostConnectionSaysSo) {
  Broker broker(options());
  std::vector<uint8_t> content(1000, 1);
  const View view = Filled(content);
  auto placed = broker.Place({&view, 1});
  ASSERT_TRUE(placed.ok());
  daemon_->Kill();
  Start();
  EXPECT_FALSE(broker.Publish(*placed, {.name = "x"}).ok());
  const auto again = broker.Publish(*placed, {.name = "x"});
  EXPECT_EQ(again.status().reason(), "PLACEMENT_LOST");
  EXPECT_TRUE(Holds(placed->views()[0], 1000, 1)) << "the bytes stay";
}

TEST_P(TwoProcessesTest, ReplacedRangesAreCarvedAgain) {
  Broker broker(options());
  constexpr size_t kBytes = 300000;
  for (int round = 0; round < 200; ++round) {
    const auto fill = static_cast<uint8_t>(round);
    auto share = Put(broker, "frame", kBytes, fill, {.replace = true});
    ASSERT_TRUE(share.ok()) << share.status().ToString();
    auto array = broker.Acquire({.name = "frame"});
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    ASSERT_TRUE(Holds(array->views[0], kBytes, fill));
  }
  EXPECT_LE(broker.client_stats().arena_bytes, 16u << 20) << "200 frames of 300 kB went through";
}

TEST_P(TwoProcessesTest, BytesOfALiveArrayAreNotCarvedAgain) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "held", 100000, 1).ok());
  auto held = broker.Acquire({.name = "held"});
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(broker.Withdraw({.name = "held"}).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(broker, "other", 100000, 2, {.replace = true}).ok());
  EXPECT_TRUE(Holds(held->views[0], 100000, 1));
}

TEST_P(TwoProcessesTest, WhatNobodyUsesIsGivenBack) {
  Broker broker(options());
  {
    ASSERT_TRUE(Put(broker, "x", 5000, 1).ok());
    auto array = broker.Acquire({.name = "x"});
    ASSERT_TRUE(array.ok());
    EXPECT_EQ(broker.client_stats().arenas_mapped, 1u);
    EXPECT_EQ(broker.client_stats().live_leases, 1u);
    ASSERT_TRUE(broker.Withdraw({.name = "x"}).ok());
  }
  ASSERT_TRUE(broker.Flush().ok());
  ASSERT_TRUE(broker.Flush().ok());
  const ClientStats mine = broker.client_stats();
  EXPECT_EQ(mine.live_leases, 0u);
  EXPECT_EQ(mine.pending_releases, 0u);
  EXPECT_EQ(mine.arenas_mapped, 0u);
  EXPECT_EQ(mine.arenas_written, 0u);
}

TEST_P(TwoProcessesTest, ASealedShareIsEnforced) {
  Broker broker(options());
  std::vector<uint8_t> content(70000, 9);
  const View view = Filled(content);
  auto placed = broker.Place({&view, 1}, true);
  ASSERT_TRUE(placed.ok()) << placed.status().ToString();
  {
    const View in_use = placed->views()[0];
    EXPECT_EQ(broker.Publish(*placed, {.name = "s", .sealed = true}).status().code(), Code::kFailedPrecondition);
  }
  auto share = broker.Publish(*placed, {.name = "s", .sealed = true});
  ASSERT_TRUE(share.ok()) << share.status().ToString();
  EXPECT_EQ(share->immutability, Immutability::kEnforced);
  auto array = broker.Acquire({.name = "s"});
  ASSERT_TRUE(array.ok());
  EXPECT_TRUE(Holds(array->views[0], 70000, 9));
}

TEST_P(TwoProcessesTest, WhatLiesInAPlacementIsPublishedInPlace) {
  Broker broker(options());
  const ArraySpec spec{.type = {1, 8, 1}, .dtype = "uint8", .shape = {1000}, .strides = {}};
  auto placed = broker.Empty({&spec, 1});
  ASSERT_TRUE(placed.ok());
  View view = placed->views()[0];
  EXPECT_TRUE(broker.PlacementOf({&view, 1}).ok());
  std::vector<uint8_t> elsewhere(1000);
  const View foreign = Filled(elsewhere);
  EXPECT_EQ(broker.PlacementOf({&foreign, 1}).status().code(), Code::kNotFound);
  ASSERT_TRUE(broker.Publish(*broker.PlacementOf({&view, 1}), {.name = "in place"}).ok());
  EXPECT_EQ(broker.PlacementOf({&view, 1}).status().code(), Code::kNotFound) << "published once";
}

TEST_P(TwoProcessesTest, ManyThreadsShareOneConnection) {
  Broker broker(options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        const std::string name = std::to_string(t);
        const auto fill = static_cast<uint8_t>(t * 16 + round % 16);
        auto share = Put(broker, name, 5000, fill, {.replace = true});
        ASSERT_TRUE(share.ok()) << share.status().ToString();
        auto array = broker.Acquire({.name = name});
        ASSERT_TRUE(array.ok()) << array.status().ToString();
        ASSERT_TRUE(Holds(array->views[0], 5000, fill));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(broker.GetStats()->sessions, 1u);
  EXPECT_EQ(broker.List()->size(), 16u);
}

TEST_P(TwoProcessesTest, EmptyAndScalarArraysTravelToo) {
  Broker broker(options());
  const std::vector<ArraySpec> specs{{.type = {2, 32, 1}, .dtype = "float32", .shape = {3, 0}, .strides = {}},
                                     {.type = {0, 64, 1}, .dtype = "int64", .shape = {}, .strides = {}}};
  auto placed = broker.Empty(specs);
  ASSERT_TRUE(placed.ok()) << placed.status().ToString();
  EXPECT_EQ(placed->views()[0].data, nullptr);
  *static_cast<int64_t*>(placed->views()[1].data) = 77;
  auto share = broker.Publish(*placed, {.structure = "tree", .metadata = "mine"});
  ASSERT_TRUE(share.ok()) << share.status().ToString();
  EXPECT_TRUE(share->unnamed);
  auto array = broker.Acquire({.name = {}, .id = share->id});
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(array->views[0].data, nullptr);
  EXPECT_EQ(array->views[0].shape, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(*static_cast<const int64_t*>(array->views[1].data), 77);
  EXPECT_EQ(array->share->structure + array->share->metadata, "treemine");
}

TEST_P(TwoProcessesTest, WhatOthersDoIsToldAndNoCallWaitsForIt) {
  Broker broker(options());
  auto watch = broker.OpenWatch({.kinds = {EventKind::kPublish, EventKind::kAcquire}});
  ASSERT_TRUE(watch.ok()) << watch.status().ToString();
  const auto nothing = watch->Next(std::chrono::milliseconds(1));
  EXPECT_EQ(nothing.status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(nothing.status().reason(), "NO_EVENT");

  std::thread waits([&] {
    const auto told = watch->Next();
    EXPECT_TRUE(told.ok()) << told.status().ToString();
    if (!told.ok()) return;
    EXPECT_EQ(told->kind, EventKind::kPublish);
    EXPECT_EQ(told->name, "frame");
    EXPECT_EQ(told->device, Device{});
    EXPECT_GT(told->process_id, 0u);
  });
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(broker.GetStats().ok());  // while another thread waits
  EXPECT_EQ(Client({"put", "frame", "42"})->Line(), "ok");
  waits.join();
  Broker other({.address = directory_, .timeout = seconds(30), .client = "other", .holds = false});
  const auto acquired = other.Acquire({.name = "frame"}, {.note = "by hand"});
  ASSERT_TRUE(acquired.ok()) << acquired.status().ToString();
  const auto told = watch->Next();
  ASSERT_TRUE(told.ok()) << told.status().ToString();
  EXPECT_EQ(told->kind, EventKind::kAcquire);
  EXPECT_EQ(told->note, "by hand");
  other.Note(*acquired->share, "otherwise");
  EXPECT_TRUE(other.Flush().ok());

  EXPECT_TRUE(watch->Close().ok());
  EXPECT_TRUE(watch->Close().ok());
  EXPECT_EQ(watch->Next().status().reason(), "WATCH_NOT_OPEN");
  EXPECT_EQ(broker.GetStats()->watchers, 0u);
}

INSTANTIATE_TEST_SUITE_P(BothWays, TwoProcessesTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Holds" : "Calls"; });

}  // namespace
}  // namespace arraybridge

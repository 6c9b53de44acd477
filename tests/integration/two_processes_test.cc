// SPDX-License-Identifier: Apache-2.0
// Bytes put in one process and read in another, through a real arraybridged. The tests compare contents, not only
// success.
#include <thread>

#include <arraybridge/broker.h>

#include "tests/integration/filled.h"
#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::seconds;

// Runs twice: shares are acquired without requests if possible, or always by request.
class TwoProcessesTest : public DaemonTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::unique_ptr<Process> Client(std::vector<std::string> words) {
    words.insert(words.begin(), {Built(CLIENT_PROGRAM), directory_});
    return std::make_unique<Process>(words);
  }
  Broker::Options options() const {
    return {.address = directory_, .timeout = seconds(30), .client = "test", .catalogue = GetParam()};
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
  EXPECT_EQ(wrong->Wait(), 1);
  EXPECT_EQ(writer->Wait(), 0);
  const auto after_the_writer = Client({"get", "frame", "42"});
  EXPECT_EQ(after_the_writer->Line(), "ok");
}

TEST_P(TwoProcessesTest, AForkedChildHasItsOwnSession) {
  const auto client = Client({"fork"});
  EXPECT_EQ(client->Wait(), 0) << client->Line();
}

TEST_P(TwoProcessesTest, AProcessMayEndWithLiveArrays) { EXPECT_EQ(Client({"leave"})->Wait(), 0); }

TEST_P(TwoProcessesTest, ASealedShareIsEnforced) {
  Broker broker(options());
  const std::vector<uint8_t> content(70000, 9);
  const View view = ViewOf(content);
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
  EXPECT_TRUE(IsFilled(array->views[0], 70000, 9));
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
  Broker other({.address = directory_, .timeout = seconds(30), .client = "other", .catalogue = false});
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

// SPDX-License-Identifier: Apache-2.0
// Reorder over a channel of a real daemon. Its workers of other processes are in
// tests/python/services/test_patterns.py.
#include <chrono>
#include <cstdint>
#include <string>

#include <arraybridge/broker.h>
#include <arraybridge/patterns/reorder.h>
#include <gtest/gtest.h>

#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{120000};  // no test waits so long

class ReorderTest : public DaemonTest {
 protected:
  // A result of the frame with this sequence, whose one value is the sequence, too.
  void Send(uint64_t sequence, const std::string& metadata) {
    const View view = *Describe(&sequence, {1, 64, 1}, {1}, {}, {}, true, nullptr);
    const auto sent = broker_.Send(worker_, {&view, 1}, {.metadata = metadata, .timeout = kLong});
    ASSERT_TRUE(sent.ok()) << sent.status().ToString();
  }
  void Send(uint64_t sequence) { Send(sequence, Reorder::MetadataOf(sequence)); }
  Reorder Of(Reorder::Options options) { return *Reorder::Of(results_, std::move(options)); }
  static uint64_t Next(Reorder& ordered) {
    const auto next = ordered.Receive(kLong);
    EXPECT_TRUE(next.ok()) << next.status().ToString();
    return next.ok() ? *static_cast<const uint64_t*>(next->views[0].data) : 0;
  }

  Broker broker_{{.address = directory_}};
  Channel results_ = *broker_.OpenChannel("done", Channel::Role::kReceiver);
  Channel worker_ = *broker_.OpenChannel("done", Channel::Role::kSender);
};

TEST_F(ReorderTest, ResultsComeInTheOrderOfTheirFrames) {
  Reorder ordered = Of({.window = 4});
  for (const uint64_t sequence : {3, 1, 4, 2}) Send(sequence);
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) EXPECT_EQ(Next(ordered), sequence);
  EXPECT_EQ(ordered.Receive(milliseconds(0)).status().reason(), "CHANNEL_EMPTY");
  EXPECT_EQ(ordered.expected(), 5u);
  EXPECT_EQ(ordered.dropped(), 0u);
}

TEST_F(ReorderTest, AMissingFrameIsToldOnceTheWindowIsFull) {
  Reorder ordered = Of({.window = 2});
  for (const uint64_t sequence : {1, 4, 5}) Send(sequence);
  EXPECT_EQ(Next(ordered), 1u);
  const Status gap = ordered.Receive(kLong).status();
  EXPECT_EQ(gap.code(), Code::kDataLoss);
  EXPECT_EQ(gap.reason(), "GAP");
  EXPECT_NE(gap.message().find("frames 2 to 3 are missing, and 2 later results have come"), std::string::npos);
  EXPECT_NE(gap.message().find("the next call goes on with frame 4"), std::string::npos);
  Send(3);
  EXPECT_EQ(Next(ordered), 4u);
  EXPECT_EQ(Next(ordered), 5u);
  Send(5);
  EXPECT_EQ(ordered.Receive(milliseconds(0)).status().reason(), "CHANNEL_EMPTY");
  EXPECT_EQ(ordered.dropped(), 2u);
}

TEST_F(ReorderTest, TheEndOfTheStreamTellsWhatIsMissingAndThenItself) {
  Reorder ordered = Of({.window = 8, .first = 2});
  for (const uint64_t sequence : {2, 4}) Send(sequence);
  ASSERT_TRUE(worker_.Close().ok());
  EXPECT_EQ(Next(ordered), 2u);
  const Status gap = ordered.Receive(kLong).status();
  EXPECT_NE(gap.message().find("frame 3 is missing, and their stream has ended"), std::string::npos);
  EXPECT_EQ(Next(ordered), 4u);
  EXPECT_EQ(ordered.Receive(kLong).status().reason(), "CHANNEL_ENDED");
}

TEST_F(ReorderTest, AResultWithoutASequenceIsToldAndDropped) {
  Reorder ordered = Of({});
  for (const std::string& metadata :
       {std::string(), std::string("arraybridge.metadata\n"), std::string("arraybridge.metadata\n{\"v\":-1}"),
        std::string("arraybridge.metadata\n{\"v\":1.5}"), std::string("arraybridge.metadata\n{\"v\":1"),
        std::string("arraybridge.metadata\n{\"v\":100000000000000000000}"), std::string("{\"v\":1}")}) {
    Send(1, metadata);
    const Status told = ordered.Receive(kLong).status();
    EXPECT_EQ(told.reason(), "NO_SEQUENCE") << metadata;
    EXPECT_NE(told.message().find("channel 'done'"), std::string::npos);
  }
  Send(1, "arraybridge.metadata\n{\"d\":[[\"camera\",{\"v\":9}],[\"sequence\",{\"v\":1}]]}");
  EXPECT_EQ(Next(ordered), 1u);
}

TEST_F(ReorderTest, AnotherSequenceMayBeStated) {
  Reorder ordered =
      Of({.sequence_of = [](const Acquired& result) { return std::optional(std::stoull(result.share->metadata)); }});
  Send(2, "2");
  Send(1, "1");
  EXPECT_EQ(Next(ordered), 1u);
  EXPECT_EQ(Next(ordered), 2u);
}

TEST_F(ReorderTest, OptionsThatCannotBeAreRefused) {
  EXPECT_EQ(Reorder::Of(results_, {.window = 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Reorder::Of(results_, {.first = 0}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace arraybridge

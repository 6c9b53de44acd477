// SPDX-License-Identifier: Apache-2.0
// Shares published before their bytes are written, through a real arraybridged, between exec'd processes on the
// simulated driver. With "held" a poll does not advance the work: bytes are written only when a thread waits for them,
// so a reader that does not wait reads the old bytes.
#include <csignal>
#include <string>

#include "proto/boundary/failpoint.h"
#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

const std::string& Library() {
  static const std::string library = DriverUnderTest(SIMULATED_CUDA_LIBRARY);
  return library;
}

void Machine(const std::string& configuration) { ::setenv("SIMULATED_CUDA", configuration.c_str(), 1); }

struct BeforeTheDaemon {
  explicit BeforeTheDaemon(const std::string& machine) { Machine(machine); }
};

class FenceTest : BeforeTheDaemon, public DaemonTest {
 protected:
  explicit FenceTest(const std::string& without = "", const std::string& events = "auto")
      : BeforeTheDaemon(without),
        DaemonTest({"--cuda-driver", Library(), "--cuda-events", events}),
        without_(without) {}

  void SetUp() override {
    if (!IsSimulated(Library())) GTEST_SKIP() << "a card decides by itself when work happens";
  }
  std::unique_ptr<Process> Client(const std::string& machine) const {
    Machine(machine + without_);
    return std::make_unique<Process>(std::vector<std::string>{Built(CUDA_CLIENT_PROGRAM), directory_, Library()});
  }
  static std::string Do(const std::unique_ptr<Process>& client, const std::string& command) {
    client->Say(command);
    return client->Line();
  }
  // Repeats without a time limit.
  static void WaitUntil(const std::unique_ptr<Process>& client, const std::string& command, const std::string& answer) {
    for (std::string got = Do(client, command); got != answer; got = Do(client, command)) ASSERT_NE(got, "");
  }

  const std::string without_;
};

TEST_F(FenceTest, NeitherSideWaitsAndTheReaderSeesTheBytes) {
  const auto writer = Client("held");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 60"), "later");
  EXPECT_EQ(Do(writer, "pending"), "1");
  ASSERT_EQ(Do(reader, "get_in_order frame"), "60");
  WaitUntil(writer, "pending", "0");
}

TEST_F(FenceTest, WhoCopiesToTheHostNeedsNoOrderOfItsOwn) {
  const auto writer = Client("held");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 61"), "later");
  ASSERT_EQ(Do(reader, "get frame"), "61");
  WaitUntil(writer, "pending", "0");
  EXPECT_EQ(Do(reader, "get frame"), "61") << "now the broker says that the bytes are written";
}

TEST_F(FenceTest, TheMakersOwnProcessWaitsForItsOwnEvent) {
  const auto writer = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 62"), "later");
  ASSERT_EQ(Do(writer, "get_in_order frame"), "62");
  WaitUntil(writer, "pending", "0");
}

TEST_F(FenceTest, EveryGenerationHasItsOwnBytes) {
  const auto writer = Client("");
  const auto reader = Client("");
  for (int i = 1; i <= 200; ++i) {
    const std::string said = Do(writer, "put_later frame " + std::to_string(i % 256));
    ASSERT_TRUE(said == "later" || said == "waited") << said;
    ASSERT_EQ(Do(reader, i % 2 == 0 ? "get frame" : "get_in_order frame"), std::to_string(i % 256));
  }
  WaitUntil(writer, "pending", "0");
}

TEST_F(FenceTest, WhenAllEventsAreWaitedForThePutWaits) {
  const auto writer = Client("held");
  const auto reader = Client("held");
  int later = 0;
  std::string said = "later";
  for (; said == "later" && later < 100; ++later) said = Do(writer, "put_later a" + std::to_string(later) + " 63");
  EXPECT_EQ(said, "waited");
  EXPECT_EQ(later, 65);
  EXPECT_EQ(Do(reader, "get a64"), "63");
  EXPECT_EQ(Do(reader, "get a0"), "63");
}

// A reader with a lease may let another stream wait for the event, so the event is not recorded for another share
// before.
TEST_F(FenceTest, AnEventIsUsedAgainWhenNobodyLeasesItsShareAnyMore) {
  const auto writer = Client("held");
  const auto reader = Client("held");
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Do(writer, "put_later a" + std::to_string(i) + " 64"), "later");
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Do(reader, "get a" + std::to_string(i)), "64");
  WaitUntil(writer, "pending", "0");
  EXPECT_EQ(Do(writer, "put_later b 65"), "waited") << "all bytes are there, all events still leased";
  EXPECT_EQ(Do(reader, "drop a0"), "ok");
  for (std::string said = "waited"; said != "later"; said = Do(writer, "put_later b 66")) ASSERT_NE(said, "");
  EXPECT_EQ(Do(reader, "get b"), "66");
}

TEST_F(FenceTest, WhoCannotOpenTheEventGetsTheBytesWhenTheyAreThere) {
  const auto writer = Client("");
  const auto reader = Client("fail=cuIpcOpenEventHandle:*:205");
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(Do(writer, "put_later frame " + std::to_string(i)), "later");
    EXPECT_EQ(Do(reader, "get frame"), std::to_string(i));
  }
}

TEST_F(FenceTest, ADriverWithoutInterprocessEventsMakesThePutWait) {
  const auto writer = Client("held;fail=cuIpcGetEventHandle:*:801");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 67"), "waited");
  EXPECT_EQ(Do(reader, "get frame"), "67");
}

TEST_F(FenceTest, AShareGoesWithAMakerThatDiedBeforeItsBytesWereThere) {
  auto writer = Client("held");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 68"), "later");
  writer->Kill();
  WaitUntil(reader, "lost", "1");
  EXPECT_EQ(Do(reader, "get frame").substr(0, 9), "NOT_FOUND");
  WaitUntil(reader, "arenas", "0");
  EXPECT_EQ(Do(reader, "put frame 69"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "69");
}

TEST_F(FenceTest, WhoLeasesWhatItsMakerNeverFinishedIsToldSo) {
  auto writer = Client("held");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 68"), "later");
  ASSERT_EQ(Do(reader, "lease frame"), "ok");
  writer->Kill();
  WaitUntil(reader, "lost", "1");
  EXPECT_EQ(Do(reader, "why_not frame"), "FENCE_LOST");
}

// On this machine a wait for the event of a dead process has no end of its own.
TEST_F(FenceTest, AWaitEndsAlthoughTheDriverDoesNotTellOfTheDeath) {
  for (const char* waits : {"why_not frame", "get_in_order_leased frame"}) {
    auto writer = Client("held");
    const auto reader = Client("held;dead_events_pend");
    ASSERT_EQ(Do(writer, "put_later frame 68"), "later");
    ASSERT_EQ(Do(reader, "lease frame"), "ok");
    writer->Kill();
    EXPECT_NE(Do(reader, waits).find("FENCE_LOST"), std::string::npos) << waits;
  }
}

// The name is free, but the reader still has its lease, and the maker lives.
TEST_F(FenceTest, AWaitOutlivesTheNameOfItsShare) {
  const auto writer = Client("held");
  const auto reader = Client("held;dead_events_pend");
  ASSERT_EQ(Do(writer, "put_later frame 68"), "later");
  ASSERT_EQ(Do(reader, "lease frame"), "ok");
  EXPECT_EQ(Do(writer, "withdraw frame"), "OK");
  EXPECT_EQ(Do(reader, "look frame"), "68");
}

TEST_F(FenceTest, AStreamWaitsByWishAndTheHostDoesNot) {
  ::setenv("ARRAYBRIDGE_STREAMS_WAIT", "1", 1);
  const auto writer = Client("held");
  const auto reader = Client("held");
  ::unsetenv("ARRAYBRIDGE_STREAMS_WAIT");
  EXPECT_EQ(Do(writer, "put_later frame 60"), "later");
  ASSERT_EQ(Do(reader, "lease frame"), "ok");
  EXPECT_EQ(Do(reader, "queries"), "0");
  EXPECT_EQ(Do(reader, "get_in_order_leased frame"), "60");
  EXPECT_EQ(Do(reader, "queries"), "0");
}

TEST_F(FenceTest, ClosingABrokerWaitsForWhatItPublished) {
  const auto writer = Client("");
  const auto reader = Client("");
  EXPECT_EQ(Do(writer, "put_later frame 70"), "later");
  EXPECT_EQ(Do(writer, "close"), "ok");
  EXPECT_EQ(Do(reader, "lost"), "0");
  EXPECT_EQ(Do(reader, "get frame"), "70");
}

// The request states its deadline. A broker that serves it later does not publish, and the publisher's event is freed.
TEST_F(FenceTest, APublishThatComesTooLateIsNotServed) {
  const auto writer = Client("");
  const auto reader = Client("fail=cuIpcOpenEventHandle:*:205");
  ASSERT_EQ(Do(writer, "hasten"), "ok");
  WaitUntil(writer, "put first 76", "ok");  // the arena exists, so the next put is a Publish only
  daemon_->Freeze();
  EXPECT_EQ(Do(writer, "put_later frame 77").substr(0, 17), "DEADLINE_EXCEEDED");
  daemon_->Signal(SIGCONT);
  EXPECT_EQ(Do(reader, "get frame").substr(0, 9), "NOT_FOUND");
  WaitUntil(writer, "put frame 78", "ok");  // the name is free, and the arena is as it was
  EXPECT_EQ(Do(reader, "get frame"), "78");
  std::string pending = Do(reader, "pending");
  for (int i = 0; i < 3000 && pending != "0"; ++i) {
    ::usleep(10'000);
    pending = Do(reader, "pending");
  }
  EXPECT_EQ(pending, "0");
}

class LateAnswerTest : public FenceTest {
 protected:
  // The daemon publishes shares that have an event, and answers after the caller has given up.
  LateAnswerTest() : FenceTest((::setenv("ARRAYBRIDGE_FAILPOINT", "late_answer:error", 1), "")) {
    ::unsetenv("ARRAYBRIDGE_FAILPOINT");
  }
};

// The broker has the share, and only its publisher can report that the bytes are written.
TEST_F(LateAnswerTest, AMakerThatDidNotWaitForTheAnswerLooksAfterItsShareAllTheSame) {
  if (!kFailpointsWork) GTEST_SKIP() << "the build has no failpoints";
  const auto writer = Client("");
  const auto reader = Client("fail=cuIpcOpenEventHandle:*:205");
  ASSERT_EQ(Do(writer, "hasten"), "ok");
  std::string got = "NOT_FOUND";
  for (int i = 0; i < 5 && got.substr(0, 9) == "NOT_FOUND"; ++i) {  // on a machine that stalls it may not be served
    EXPECT_EQ(Do(writer, "put_later frame 77").substr(0, 17), "DEADLINE_EXCEEDED");
    got = Do(reader, "get frame");
  }
  EXPECT_EQ(got, "77") << "it waits until the bytes are reported as written";
  WaitUntil(reader, "pending", "0");
}

// Bytes that are still being written are not given to another client, even if the share is withdrawn.
TEST_F(FenceTest, BytesOnTheirWayAreNotWrittenOver) {
  const auto writer = Client("held");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 71"), "later");
  EXPECT_EQ(Do(writer, "withdraw frame"), "OK");
  EXPECT_EQ(Do(writer, "put next 72"), "ok");
  EXPECT_EQ(Do(writer, "put_later other 73"), "later");
  EXPECT_EQ(Do(reader, "get other"), "73") << "with it the first copy happens, too";
  EXPECT_EQ(Do(reader, "get next"), "72");
}

// The simulated driver ends a process that frees memory under queued work.
TEST_F(FenceTest, AQuestionThatFailedOnceFreesNothingUnderQueuedWork) {
  const auto reader = Client("");
  for (const char* error : {"2", "999"}) {
    const auto writer = Client(std::string("fail=cuEventQuery:1:") + error);
    EXPECT_EQ(Do(writer, "put_later frame 78"), "later");
    WaitUntil(writer, "pending", "0");
    EXPECT_EQ(Do(writer, "lost"), "0");
    EXPECT_EQ(Do(reader, "get frame"), "78");
  }
}

class IpcFenceTest : public FenceTest {
 protected:
  IpcFenceTest() : FenceTest(";off=103") {}
};

TEST_F(IpcFenceTest, LegacyHandlesHaveFencesToo) {
  const auto writer = Client("held");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 74"), "later");
  EXPECT_EQ(Do(reader, "get_in_order frame"), "74");
}

class NoFenceTest : public FenceTest {
 protected:
  NoFenceTest() : FenceTest("", "never") {}
};

TEST_F(NoFenceTest, ADaemonMayBeToldToOfferNone) {
  const auto writer = Client("held");
  const auto reader = Client("held");
  EXPECT_EQ(Do(writer, "put_later frame 75"), "waited");
  EXPECT_EQ(Do(reader, "get frame"), "75");
}

}  // namespace
}  // namespace arraybridge

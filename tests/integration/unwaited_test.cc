// SPDX-License-Identifier: Apache-2.0
// Unwaited publishes with a real daemon. Every session finds the shares at once and in order; errors are reported
// later.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include <arraybridge/broker.h>

#include "tests/integration/filled.h"
#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kBytes = 4096;

// Each test runs in two ways: by publishing a Placement, and by Put, which makes none.
class UnwaitedTest : public DaemonTest, public testing::WithParamInterface<bool> {
 protected:
  explicit UnwaitedTest(std::vector<std::string> options = {}) : DaemonTest(std::move(options)) {}

  Broker::Options options() const {
    return {.address = directory_, .timeout = seconds(30), .client = "test", .interrupted = {}, .cuda_driver = {}};
  }

  static Result<Placement> Place(Broker& broker, uint8_t fill, size_t bytes = kBytes) {
    const std::vector<uint8_t> content(bytes, fill);
    const View view = ViewOf(content);
    return broker.Place({&view, 1});
  }
  static Status Put(Broker& broker, const std::string& name, uint8_t fill, bool wait = false, bool replace = false) {
    return Put(broker, fill, {.name = name, .replace = replace, .wait = wait});
  }
  static Status Put(Broker& broker, uint8_t fill, const Broker::PublishOptions& options) {
    if (GetParam()) {
      const std::vector<uint8_t> content(kBytes, fill);
      const View view = ViewOf(content);
      return broker.Put({&view, 1}, options).status();
    }
    const auto placed = Place(broker, fill);
    if (!placed.ok()) return placed.status();
    return broker.Publish(*placed, options).status();
  }
  // After this call the broker object publishes through its queue.
  static void Meet(Broker& broker) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Put(broker, "meet/" + std::to_string(i), 0).ok());
    ASSERT_GT(broker.client_stats().unwaited_publishes, 0u);
    ASSERT_TRUE(broker.Flush().ok());
  }
  static bool Holds(const Acquired& array, uint8_t fill) {
    const std::vector<uint8_t> expected(kBytes, fill);
    return array.views[0].nbytes() == kBytes && std::memcmp(array.views[0].data, expected.data(), kBytes) == 0;
  }
};

TEST_P(UnwaitedTest, AShareIsFoundAtOnce) {
  Broker writer(options());
  Broker reader(options());
  Meet(writer);
  const uint64_t before = writer.client_stats().unwaited_publishes;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "frame/" + std::to_string(i);
    ASSERT_TRUE(Put(writer, name, static_cast<uint8_t>(i)).ok());
    const auto got = reader.Acquire({.name = name});
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_TRUE(Holds(*got, static_cast<uint8_t>(i)));
    EXPECT_EQ(got->share->arrays[0].dtype, "uint8");
    EXPECT_NE(got->share->id, 0u);
  }
  EXPECT_GT(writer.client_stats().unwaited_publishes, before + 290);
  EXPECT_TRUE(writer.Flush().ok());
}

TEST_P(UnwaitedTest, ItsPublisherFindsItToo) {
  Broker broker(options());
  Meet(broker);
  ASSERT_TRUE(Put(broker, "own", 7).ok());
  const auto got = broker.Acquire({.name = "own"});
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(Holds(*got, 7));
}

TEST_P(UnwaitedTest, ListWithdrawAndPublishSeeWhatStandsInAQueue) {
  Broker writer(options());
  Broker other(options());
  Meet(writer);
  ASSERT_TRUE(other.GetServerInfo().ok());
  ASSERT_TRUE(Put(writer, "listed/a", 1).ok());
  EXPECT_EQ(other.List("listed/")->size(), 1u);
  ASSERT_TRUE(Put(writer, "withdrawn", 1).ok());
  EXPECT_TRUE(other.Withdraw({.name = "withdrawn"}).ok());
  ASSERT_TRUE(Put(writer, "taken", 1).ok());
  EXPECT_EQ(Put(other, "taken", 2, true).code(), Code::kAlreadyExists);
  ASSERT_TRUE(Put(writer, "replaced", 1).ok());
  EXPECT_TRUE(Put(other, "replaced", 2, true, true).ok());
  const auto got = other.Acquire({.name = "replaced"});
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(Holds(*got, 2)) << "the later one";
  EXPECT_TRUE(writer.Flush().ok()) << "none of its own failed";
}

TEST_P(UnwaitedTest, AWaitForANameEnds) {
  Broker writer(options());
  Meet(writer);
  for (int i = 0; i < 20; ++i) {
    const std::string name = "awaited/" + std::to_string(i);
    std::thread waiting([&] {
      Broker reader(options());
      const auto got = reader.Acquire({.name = name}, {.wait = seconds(30)});
      EXPECT_TRUE(got.ok()) << got.status().ToString();
    });
    // With and without a caller that already waits. Both must return.
    if (i % 2 == 0) {
      while (writer.GetStats()->waiting == 0) std::this_thread::yield();
    }
    EXPECT_TRUE(Put(writer, name, 1).ok());
    waiting.join();
  }
}

TEST_P(UnwaitedTest, UnwaitedAndWaitedRequestsKeepTheirOrder) {
  Broker broker(options());
  Meet(broker);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Put(broker, "x", 1).ok());
    ASSERT_TRUE(Put(broker, "x", 2, true, true).ok()) << "replaces the share in the queue";
    const auto got = broker.Acquire({.name = "x"});
    ASSERT_TRUE(got.ok());
    ASSERT_TRUE(Holds(*got, 2));
    ASSERT_TRUE(broker.Withdraw({.name = "x"}).ok());
  }
  ASSERT_TRUE(broker.Flush().ok());
}

TEST_P(UnwaitedTest, AFailureIsToldByTheNextPublishOrFlush) {
  Broker broker(options());
  Meet(broker);
  ASSERT_TRUE(Put(broker, "there", 1, true).ok());
  ASSERT_TRUE(Put(broker, "there", 2).ok()) << "no call has looked yet";
  const Status flushed = broker.Flush();
  EXPECT_EQ(flushed.code(), Code::kAlreadyExists);
  EXPECT_EQ(flushed.reason(), "NAME_TAKEN");
  EXPECT_NE(flushed.message().find("'there'"), std::string::npos) << flushed.message();
  EXPECT_TRUE(broker.Flush().ok()) << "told once";

  ASSERT_TRUE(Put(broker, "there", 2).ok());
  ASSERT_TRUE(broker.GetStats().ok());  // now the broker has served it
  ASSERT_TRUE(Put(broker, "fine", 1).ok()) << "this call learns of the error";
  const Status next = Put(broker, "not done", 1);
  EXPECT_EQ(next.reason(), "NAME_TAKEN");
  EXPECT_EQ(broker.Acquire({.name = "not done"}).status().code(), Code::kNotFound);
  EXPECT_TRUE(broker.Acquire({.name = "fine"}).ok());
  EXPECT_TRUE(broker.Flush().ok());
  EXPECT_TRUE(Holds(*broker.Acquire({.name = "there"}), 1));
}

TEST_P(UnwaitedTest, AFailedPlacementMayBePublishedAnew) {
  Broker broker(options());
  Meet(broker);
  ASSERT_TRUE(Put(broker, "there", 1, true).ok());
  const auto placed = Place(broker, 9);
  ASSERT_TRUE(broker.Publish(*placed, {.name = "there", .wait = false}).ok());
  EXPECT_EQ(broker.Publish(*placed, {.name = "twice"}).status().reason(), "PLACEMENT_PUBLISHED");
  EXPECT_EQ(broker.Flush().reason(), "NAME_TAKEN");
  ASSERT_TRUE(broker.Publish(*placed, {.name = "elsewhere"}).ok());
  EXPECT_TRUE(Holds(*broker.Acquire({.name = "elsewhere"}), 9));
}

TEST_P(UnwaitedTest, RangesOfFailedAndOfWithdrawnSharesAreCarvedAgain) {
  Broker broker(options());
  Broker other(options());
  Meet(broker);
  ASSERT_TRUE(Put(broker, "there", 1, true).ok());
  for (int round = 0; round < 2000; ++round) {
    ASSERT_TRUE(Put(broker, "there", 2).ok());
    EXPECT_EQ(broker.Flush().reason(), "NAME_TAKEN");
    ASSERT_TRUE(Put(broker, "mine", 3).ok());
    ASSERT_TRUE(other.Withdraw({.name = "mine"}).ok());
  }
  EXPECT_LE(broker.client_stats().arena_bytes, 6u << 20) << "4000 ranges of 4 KiB are 16 MiB";
}

TEST_P(UnwaitedTest, MoreThanAQueueHoldsGoesThrough) {
  Broker writer(options());
  Broker reader(options());
  Meet(writer);
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(Put(writer, "many/" + std::to_string(i), static_cast<uint8_t>(i)).ok());
  ASSERT_TRUE(writer.Flush().ok());
  EXPECT_EQ(reader.List("many/")->size(), 3000u);
}

TEST_P(UnwaitedTest, APublishThatDoesNotFitOrReplacesIsWaitedFor) {
  Broker broker(options());
  Meet(broker);
  const uint64_t before = broker.client_stats().unwaited_publishes;
  const Broker::PublishOptions longer{.name = "x", .metadata = std::string(5000, 'm'), .wait = false};
  ASSERT_TRUE(Put(broker, 4, longer).ok());
  EXPECT_EQ(Put(broker, 4, longer).reason(), "NAME_TAKEN") << "at once";
  EXPECT_TRUE(Put(broker, "x", 5, false, true).ok());
  EXPECT_EQ(broker.client_stats().unwaited_publishes, before);
  EXPECT_EQ(Put(broker, "", 4).code(), Code::kInvalidArgument) << "it could not be found";
  EXPECT_TRUE(Holds(*broker.Acquire({.name = "x"}), 5));
}

// Unwaited requests of one slot, of several slots, and with a frame, in one queue: none overtakes another.
TEST_P(UnwaitedTest, RequestsOfEveryLengthKeepTheirOrder) {
  Broker broker(options());
  Meet(broker);
  const uint64_t before = broker.client_stats().unwaited_publishes;
  for (int i = 0; i < 100; ++i) {
    const auto fill = static_cast<uint8_t>(i);
    const std::string name = std::string(150, 'n') + std::to_string(i);
    ASSERT_TRUE(Put(broker, name, fill).ok());
    ASSERT_TRUE(Put(broker, fill,
                    {.name = "m" + name, .metadata = std::string(static_cast<size_t>(10 * i), 'm'), .wait = false})
                    .ok());
    ASSERT_EQ(Put(broker, fill, {.name = name, .metadata = std::string(5000, 'm')}).reason(), "NAME_TAKEN");
    ASSERT_TRUE(Holds(*broker.Acquire({.name = "m" + name}), fill));
  }
  EXPECT_GT(broker.client_stats().unwaited_publishes, before + 180) << "all but the first of a new arena";
  EXPECT_TRUE(broker.Flush().ok());
}

TEST_P(UnwaitedTest, ManyThreadsPublishThroughOneQueue) {
  Broker writer(options());
  Meet(writer);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto put = Put(writer, "t" + std::to_string(t) + "/" + std::to_string(i), static_cast<uint8_t>(t));
        EXPECT_TRUE(put.ok()) << put.ToString();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(writer.Flush().ok());
  for (int t = 0; t < 4; ++t) EXPECT_EQ(writer.List("t" + std::to_string(t) + "/")->size(), 500u);
}

TEST_P(UnwaitedTest, AProcessThatEndsAtOnceHasPublished) {
  {
    Broker writer(options());
    Meet(writer);
    ASSERT_TRUE(Put(writer, "last words", 6).ok());
  }
  Broker reader(options());
  const auto got = reader.Acquire({.name = "last words"}, {.wait = seconds(30)});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_TRUE(Holds(*got, 6));
}

TEST_P(UnwaitedTest, AChildPublishesForItself) {
  Broker broker(options());
  Meet(broker);
  ASSERT_TRUE(Put(broker, "parent/1", 1).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    bool fine = true;
    for (int i = 0; i < 20; ++i) fine = fine && Put(broker, "child/" + std::to_string(i), 2).ok();
    fine = fine && broker.client_stats().unwaited_publishes > 0 && broker.Flush().ok();
    ::_exit(fine ? 0 : 1);
  }
  for (int i = 2; i < 20; ++i) ASSERT_TRUE(Put(broker, "parent/" + std::to_string(i), 1).ok());
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  ASSERT_TRUE(broker.Flush().ok());
  EXPECT_EQ(broker.List("parent/")->size(), 19u);
  EXPECT_EQ(broker.List("child/")->size(), 20u);
}

TEST_P(UnwaitedTest, ABrokerThatGoesTakesNothingSilently) {
  Broker broker(options());
  Meet(broker);
  daemon_->Freeze();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Put(broker, "lost/" + std::to_string(i), 1).ok());
  daemon_->Kill();
  const Status flushed = broker.Flush();
  EXPECT_FALSE(flushed.ok());
  Start();
  const Status told = flushed.reason() == "PUBLISH_LOST" ? flushed : broker.Flush();
  EXPECT_EQ(told.reason(), "PUBLISH_LOST") << told.ToString();
  EXPECT_NE(told.message().find("4 more"), std::string::npos) << told.ToString();
  ASSERT_TRUE(broker.Flush().ok());
  Meet(broker);
  EXPECT_EQ(broker.List("lost/")->size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, UnwaitedTest, testing::Bool(),
                         [](const auto& way) { return way.param ? "Put" : "PlaceAndPublish"; });

class PutTest : public UnwaitedTest {};
INSTANTIATE_TEST_SUITE_P(Alone, PutTest, testing::Values(true));

TEST_P(PutTest, SeveralArraysOfAnyStridesMakeOneShare) {
  Broker writer(options());
  Broker reader(options());
  Meet(writer);
  std::vector<int32_t> numbers(12);
  for (int i = 0; i < 12; ++i) numbers[i] = i;
  View transposed;
  transposed.data = numbers.data();
  transposed.type = {0, 32, 1};
  transposed.shape = {4, 3};
  transposed.strides = {1, 4};
  View empty = transposed;
  empty.data = nullptr;
  empty.shape = {0, 3};
  empty.strides = {3, 1};
  const std::vector<uint8_t> bytes(kBytes, 9);
  const std::vector<View> sources = {transposed, empty, ViewOf(bytes)};
  const uint64_t before = writer.client_stats().unwaited_publishes;
  const auto put = writer.Put(sources, {.name = "tree", .structure = "of mine", .metadata = "more", .wait = false});
  ASSERT_TRUE(put.ok()) << put.status().ToString();
  EXPECT_EQ(writer.client_stats().unwaited_publishes, before + 1);
  const auto got = reader.Acquire({.name = "tree"});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ASSERT_EQ(got->views.size(), 3u);
  EXPECT_EQ(got->share->structure, "of mine");
  EXPECT_EQ(got->share->metadata, "more");
  EXPECT_EQ(got->views[0].shape, transposed.shape);
  EXPECT_EQ(got->views[0].dtype, "int32");
  const auto* const seen = static_cast<const int32_t*>(got->views[0].data);
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column < 3; ++column) EXPECT_EQ(seen[3 * row + column], numbers[row + 4 * column]);
  }
  EXPECT_EQ(got->views[1].shape, empty.shape);
  EXPECT_EQ(std::memcmp(got->views[2].data, bytes.data(), kBytes), 0);
  EXPECT_EQ(put->arrays.size(), 3u);
  EXPECT_EQ(put->name, "tree");
  EXPECT_EQ(put->ns, got->share->ns);
  EXPECT_EQ(put->size, got->share->size);
}

// The broker learns that the last handle of a channel's end and of a watch has been dropped, although the queue was
// full.
TEST_P(PutTest, AnEndAndAWatchThatAreDroppedInAFullQueueAreClosed) {
  static thread_local bool fills = false;
  std::atomic<bool> is_full{false};
  Broker::Options its = options();
  its.interrupted = [&is_full] {
    if (fills) is_full = true;
    return false;
  };
  Broker broker(its);
  Broker other(options());
  Meet(broker);
  auto channel = std::make_unique<Channel>(*broker.OpenChannel("frames", Channel::Role::kReceiver));
  auto watch = std::make_unique<Watch>(*broker.OpenWatch({.name_prefix = "never"}));
  ASSERT_EQ(other.GetStats()->channels, 1u);
  ASSERT_EQ(other.GetStats()->watchers, 1u);
  daemon_->Freeze();
  // Small arrays: one arena has room for as many as the queue. A put waits only where the queue is full.
  std::thread filler([&] {
    fills = true;
    const std::vector<uint8_t> content(64, 1);
    const View view = ViewOf(content);
    for (int i = 0; !is_full; ++i) {
      EXPECT_TRUE(broker.Put({&view, 1}, {.name = "filling/" + std::to_string(i), .wait = false}).ok());
    }
  });
  while (!is_full) std::this_thread::yield();
  std::thread channel_dropper([&] { channel.reset(); });
  std::thread watch_dropper([&] { watch.reset(); });
  // Long enough for both to return if they did not wait for room.
  std::this_thread::sleep_for(milliseconds(200));
  daemon_->Signal(SIGCONT);
  filler.join();
  channel_dropper.join();
  watch_dropper.join();
  ASSERT_TRUE(broker.Flush().ok());
  EXPECT_EQ(other.GetStats()->channels, 0u);
  EXPECT_EQ(other.GetStats()->watchers, 0u);
}

TEST_P(PutTest, AnImpossiblePutIsRefusedAtOnce) {
  Broker writer(options());
  Meet(writer);
  EXPECT_EQ(writer.Put({}, {.name = "nothing", .wait = false}).status().code(), Code::kInvalidArgument);
  const std::vector<uint8_t> content(kBytes);
  const View view = ViewOf(content);
  EXPECT_EQ(writer.Put({&view, 1}, {.name = "", .wait = false}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(writer.Put({&view, 1}, {.name = std::string(100000, 'n'), .wait = false}).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace arraybridge

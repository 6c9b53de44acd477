// SPDX-License-Identifier: Apache-2.0
// Shares that are published before their bytes are complete: the sessions that may lease them, the reuse of the event,
// and the loss of the bytes.
#include "tests/unit/broker/hazard_reader.h"
#include "tests/unit/broker/kinds_fixture.h"

namespace arraybridge::daemon {
namespace {

const std::string kEvent(64, 'e');

class FenceTest : public KindsTest {
 protected:
  SessionId OpenAt(const std::string& events, ProcessFd process = nullptr) {
    return Open({HandleKind::kCudaVmm}, std::move(process), events);
  }
  // Publishes the share "on-gpu", whose bytes are not complete.
  ShareId Pending(SessionId session, const Handle& arena) {
    const auto published = broker_.Publish(session, Call(arena, kEvent));
    EXPECT_TRUE(published.ok()) << published.status().ToString();
    return published->share;
  }
  EndedFences End(SessionId session, ShareId share, bool lost = false) {
    const uint64_t number = Number(share);
    const std::span<const uint64_t> one(&number, 1);
    const auto ended =
        broker_.EndFences(session, lost ? std::span<const uint64_t>{} : one, lost ? one : std::span<const uint64_t>{});
    EXPECT_TRUE(ended.ok()) << ended.status().ToString();
    return *ended;
  }
  Result<AcquiredShares> AcquireFinal(SessionId session) {
    const ShareKey key{.name = "on-gpu"};
    return broker_.Acquire(session, "default", {&key, 1}, true, true);
  }
};

TEST_F(FenceTest, WhoOpensTheMakersEventsIsToldTheEventAndOthersThatItIsPending) {
  const auto writer = OpenAt("here");
  const ShareId share = Pending(writer, Allocated(writer));
  EXPECT_EQ(broker_.TakeSnapshot().pending_fences, 1u);
  const auto reader = OpenAt("here");
  const auto told = Acquire(reader);
  ASSERT_TRUE(told.ok()) << told.status().ToString();
  EXPECT_EQ(told->shares[0].fence.event, kEvent);
  for (const std::string elsewhere : {"there", ""}) {
    const auto refused = Acquire(OpenAt(elsewhere));
    EXPECT_THAT(refused, FailsWith(Code::kNotFound, "FENCE_PENDING"));
    EXPECT_EQ(refused.status().metadata().at(0).second, "on-gpu");
    EXPECT_THAT(refused.status().message(), testing::HasSubstr("(session 1, process 4711, user 1000)"));
    EXPECT_THAT(refused.status().message(), testing::HasSubstr("event on GPU-1"));
  }
  EXPECT_THAT(AcquireFinal(reader), FailsWith(Code::kNotFound, "FENCE_PENDING"));
  ListFilter all;
  all.page_size = 10;
  EXPECT_FALSE(broker_.ListShares(reader, all)->rows.at(0).fence_done);

  const auto ended = End(writer, share);
  ASSERT_EQ(ended.finished.size(), 1u);
  EXPECT_EQ(ended.finished[0]->name, "on-gpu");
  EXPECT_EQ(broker_.TakeSnapshot().pending_fences, 0u);
  EXPECT_TRUE(broker_.ListShares(reader, all)->rows.at(0).fence_done);
  EXPECT_TRUE(Acquire(OpenAt(""))->shares[0].fence.done());
  EXPECT_TRUE(AcquireFinal(reader)->shares[0].fence.done());
}

TEST_F(FenceTest, IsFoundWithoutACallOnceItIsDone) {
  const auto writer = OpenAt("here");
  const ShareId share = Pending(writer, Allocated(writer));
  Reader reader(broker_, writer);
  ASSERT_TRUE(Acquire(OpenAt("here")).ok());  // inserts the shares that were published before
  EXPECT_FALSE(reader.Find("on-gpu")) << "its reader must wait for a device";
  End(writer, share);
  EXPECT_TRUE(reader.Hold("on-gpu"));
}

TEST_F(FenceTest, AnEventIsAwaitedUntilEverybodyWhoWasToldItHasReleasedTheShare) {
  const auto writer = OpenAt("here");
  const ShareId share = Pending(writer, Allocated(writer));
  const auto reader = OpenAt("here");
  const auto other = OpenAt("here");
  const auto told = Acquire(reader);
  ASSERT_TRUE(Acquire(other).ok());
  EXPECT_EQ(End(writer, share).awaited, std::vector{Number(share)});
  const auto late = Acquire(reader);  // it did not receive the event
  Release(reader, *told);
  EXPECT_EQ(End(writer, share).awaited, std::vector{Number(share)});
  broker_.EndSession(other);
  EXPECT_TRUE(End(writer, share).awaited.empty());
  EXPECT_TRUE(late->shares[0].fence.done());
  EXPECT_TRUE(End(writer, share).awaited.empty()) << "the second report has no effect";
}

TEST_F(FenceTest, BytesThatAreBeingWrittenAreGivenToNobody) {
  const auto writer = OpenAt("here");
  const Handle arena = Allocated(writer);
  const ShareId share = Pending(writer, arena);
  Withdraw(writer);
  EXPECT_TRUE(broker_.TakeReturned(writer, 10).empty());
  EXPECT_THAT(broker_.Publish(writer, Call(arena)), FailsWith(Code::kFailedPrecondition, "OVERLAP"));
  EXPECT_TRUE(End(writer, share).awaited.empty());
  EXPECT_EQ(broker_.TakeReturned(writer, 10).size(), 1u);
  EXPECT_TRUE(broker_.Publish(writer, Call(arena)).ok());
}

TEST_F(FenceTest, AShareIsLostWithItsMakersSession) {
  Sleeper process;
  const auto writer = OpenAt("here", process.Watch());
  Pending(writer, Allocated(writer));
  const auto reader = OpenAt("here");
  const auto told = Acquire(reader);
  broker_.EndSession(writer);
  EXPECT_EQ(broker_.TakeSnapshot().lost_fences_total, 1u);
  EXPECT_EQ(broker_.TakeSnapshot().pending_fences, 0u);
  EXPECT_THAT(Acquire(OpenAt("here")), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  broker_.EndSession(reader);
  EXPECT_EQ(Swept(), 0u) << "its process may still write";
  EXPECT_EQ(broker_.Devices().at(1).quarantined_bytes, kPage);
  process.Kill();
}

// A session that has ended is cleared in slices. A share that its reader releases between two slices is gone.
TEST_F(FenceTest, AReaderLetsGoWhileTheMakerIsClearedAway) {
  constexpr int kMany = 70;  // more than a slice
  const auto writer = OpenAt("here");
  const auto reader = OpenAt("here");
  std::vector<AcquiredShares> read;
  for (int i = 0; i < kMany; ++i) {
    const ShareId share = Pending(writer, Allocated(writer));
    auto told = Acquire(reader);
    ASSERT_TRUE(told.ok()) << told.status().ToString();
    read.push_back(*std::move(told));
    EXPECT_FALSE(End(writer, share).awaited.empty());
    Withdraw(writer);
  }
  broker_.EndSession(writer);
  for (const AcquiredShares& each : read) Release(reader, each);
  while (broker_.SweepOn(Clock::now()).unfinished) continue;
  EXPECT_EQ(broker_.TakeSnapshot().withdrawn_shares, 0u);
  EXPECT_EQ(broker_.TakeSnapshot().leases, 0u);
}

TEST_F(FenceTest, WorkThatFailedWithdrawsItsShareAndNobodyElses) {
  const auto writer = OpenAt("here");
  const ShareId share = Pending(writer, Allocated(writer));
  EXPECT_TRUE(End(OpenAt("here"), share, true).finished.empty()) << "not its maker";
  EXPECT_TRUE(Acquire(writer).ok());
  EXPECT_EQ(End(writer, share, true).awaited.size(), 1u);
  EXPECT_THAT(Acquire(writer), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  EXPECT_EQ(broker_.TakeSnapshot().lost_fences_total, 1u);
}

// In both orders the share is withdrawn with its maker's session, while the maker still has its event.
TEST_F(FenceTest, AMakerThatReadsItsOwnShareTakesItAlong) {
  const auto writer = OpenAt("here");
  const ShareId share = Pending(writer, Allocated(writer));
  ASSERT_TRUE(Acquire(writer).ok());
  EXPECT_EQ(End(writer, share).awaited, std::vector{Number(share)});
  Withdraw(writer);
  broker_.EndSession(writer);
  EXPECT_EQ(broker_.TakeSnapshot().lost_fences_total, 0u) << "its bytes were complete";
  EXPECT_EQ(broker_.TakeSnapshot().withdrawn_shares, 0u);
  EXPECT_EQ(broker_.TakeSnapshot().pending_fences, 0u);
}

TEST_F(FenceTest, AMakerThatHoldsItsOwnShareTakesItAlong) {
  const auto writer = OpenAt("here");
  const ShareId share = Pending(writer, Allocated(writer));
  Reader held(broker_, writer);
  const auto reader = OpenAt("here");
  const auto told = Acquire(reader);
  EXPECT_EQ(End(writer, share).awaited, std::vector{Number(share)});
  ASSERT_TRUE(held.Hold("on-gpu"));
  Withdraw(writer);
  Release(reader, *told);
  broker_.EndSession(writer);
  EXPECT_EQ(broker_.TakeSnapshot().lost_fences_total, 0u);
  EXPECT_EQ(broker_.TakeSnapshot().withdrawn_shares, 0u);
  EXPECT_FALSE(broker_.hazards_waiting());
}

TEST_F(FenceTest, EventsAreForMemoryOfDevicesAndForWhoWasOfferedThem) {
  const auto writer = OpenAt("");
  EXPECT_THAT(broker_.Publish(writer, Call(Allocated(writer), kEvent)),
              FailsWith(Code::kFailedPrecondition, "FENCE_NOT_OFFERED"));
  const auto on_host = Open({HandleKind::kMemfd}, nullptr, "here");
  const auto arena = broker_.Allocate(on_host, {"default", Device{}, kPage});
  ASSERT_TRUE(broker_.Mapped(on_host, ArenaId{arena->handle.arena}).ok());
  EXPECT_THAT(broker_.Publish(on_host, Call(arena->handle, kEvent)),
              FailsWith(Code::kFailedPrecondition, "FENCE_NOT_OFFERED"));
}

}  // namespace
}  // namespace arraybridge::daemon

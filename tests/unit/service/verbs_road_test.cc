// How a road is made and how it ends, whatever its two ends have written there.
#include <sys/socket.h>

#include <thread>

#include "tests/unit/service/channel_fixture.h"
#include "tests/unit/service/road_ends.h"

namespace arraybridge {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kCapacity = 4;
constexpr auto kSender = v1::OpenChannelRequest::SENDER;
constexpr auto kReceiver = v1::OpenChannelRequest::RECEIVER;

class VerbsRoadTest : public VerbsChannelTest {
 protected:
  void Build() {
    sender_ = Open();
    receiver_ = Open();
    arena_ = Arena(sender_, kMiB);
    sending_ = End(sender_, kSender, kCapacity);
    receiving_ = End(receiver_, kReceiver);
    ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  }
  // Ends it, and tells why a part of it is refused.
  Status RefusedPart(const Caller& caller, uint64_t end, v1::BrowseRequest::Part part = v1::BrowseRequest::ROAD_OWN) {
    v1::BrowseRequest request;
    request.set_channel(end);
    request.set_part(part);
    return verbs().Browse(caller, request).status();
  }
  std::string ReasonOf(Received received) { return received->Get().status().reason(); }
  Received Leave() {
    v1::ReceiveRequest request;
    request.set_channel(receiving_);
    request.set_off_road(true);
    auto awaited = std::make_unique<Awaited<v1::AcquireResponse>>();
    verbs().Receive(receiver_, request, [a = awaited.get()](auto answer) { a->promise.set_value(std::move(answer)); });
    return awaited;
  }
  void CloseBoth() {
    Close(sender_, sending_);
    Close(receiver_, receiving_);
  }

  Caller sender_;
  Caller receiver_;
  v1::Handle arena_;
  uint64_t sending_ = 0;
  uint64_t receiving_ = 0;
  std::optional<RoadEnds> ends_;
};

TEST_F(VerbsRoadTest, IsOpenOnceBothHaveMappedIt) {
  Build();
  EXPECT_EQ(ends_->sign().opened, 1u);
  EXPECT_EQ(ends_->sign().capacity, kCapacity);
  EXPECT_EQ(ends_->sign().calls, 0u);
  EXPECT_EQ(ends_->sign().revoked, road::kStands);
  EXPECT_FALSE(RefusedPart(sender_, sending_).ok()) << "the writable page is given once";
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_, kLong)), "CHANNEL_ON_ROAD") << "at once";
}

TEST_F(VerbsRoadTest, WhoWaitsByACallIsSentToTheRoad) {
  sender_ = Open();
  receiver_ = Open();
  sending_ = End(sender_, kSender, kCapacity);
  receiving_ = End(receiver_, kReceiver);
  auto waits = Receive(receiver_, receiving_, kLong);
  EXPECT_FALSE(IsAnswered(waits));
  ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  EXPECT_EQ(ReasonOf(std::move(waits)), "CHANNEL_ON_ROAD");
}

TEST_F(VerbsRoadTest, IsForOneSenderAndOneReceiverOnLifelines) {
  sender_ = Open();
  sending_ = End(sender_, kSender);
  EXPECT_EQ(RefusedPart(sender_, sending_).reason(), "NO_ROAD");
  EXPECT_EQ(RefusedPart(sender_, sending_ + 7).reason(), "CHANNEL_NOT_OPEN");
  const Caller far = Open(Door::kGrpc);
  const uint64_t fars = End(far, kReceiver);
  EXPECT_EQ(RefusedPart(sender_, sending_).reason(), "NO_ROAD");
  Close(far, fars);
  const Caller another = Open();
  const uint64_t anothers = End(another, kReceiver);
  End(another, kReceiver);
  EXPECT_EQ(RefusedPart(another, anothers).reason(), "NO_ROAD");
  EXPECT_EQ(RefusedPart(another, anothers, v1::BrowseRequest::ROAD_BELL).reason(), "NO_ROAD");
  v1::MappedRequest mapped;
  mapped.set_road_of(anothers);
  EXPECT_EQ(verbs().Mapped(another, mapped).status().reason(), "NO_ROAD");
}

TEST_F(VerbsRoadTest, SoManyOfAUserAndNoMore) {
  config_.limits.roads_per_uid = 1;
  Build();
  v1::OpenChannelRequest request;
  request.set_name("another");
  request.set_role(kSender);
  const auto sends = verbs().OpenChannel(sender_, request);
  request.set_role(kReceiver);
  ASSERT_TRUE(verbs().OpenChannel(receiver_, request).ok());
  const Status refused = RefusedPart(sender_, sends->message.channel());
  EXPECT_EQ(refused.reason(), "TOO_MANY_ROADS");
  CloseBoth();
  EXPECT_EQ(RefusedPart(sender_, sends->message.channel()).reason(), "TOO_MANY_ROADS")
      << "its sender may wait for what was received there";
  v1::ReleaseRequest release;
  release.add_roads(sending_);
  EXPECT_TRUE(verbs().Release(sender_, release).ok());
  EXPECT_TRUE(RefusedPart(sender_, sends->message.channel()).ok());
}

TEST_F(VerbsRoadTest, AStandingRoadIsNotForgotten) {
  config_.limits.roads_per_uid = 1;
  Build();
  v1::ReleaseRequest release;
  release.add_roads(sending_);
  EXPECT_TRUE(verbs().Release(sender_, release).ok());
  ends_->Send(arena_, 3);
  verbs().EndSession(sender_.session);
  EXPECT_EQ(ends_->sign().revoked, road::kEnded);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 3u);
}

TEST_F(VerbsRoadTest, WhoJoinsEndsItAndWhatStandsThereIsQueued) {
  Build();
  ends_->Send(arena_, 0);
  ends_->Send(arena_, 1);
  ends_->Send(arena_, 2);
  ends_->Take();
  EXPECT_EQ(verbs().Stats().queued_shares(), 2u);
  const Caller third = Open(Door::kGrpc);
  End(third, kReceiver);
  EXPECT_EQ(ends_->sign().revoked, road::kEnded);
  EXPECT_EQ(ends_->sign().counted, 3u);
  EXPECT_EQ(ends_->sign().taken, 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_EMPTY");
  EXPECT_EQ(RefusedPart(sender_, sending_).reason(), "NO_ROAD");
}

TEST_F(VerbsRoadTest, WhatGoesByACallComesAfterWhatStandsThere) {
  Build();
  EXPECT_TRUE(Send(sender_, sending_, arena_, 9)->Get().ok()) << "nothing stands there: beside it";
  EXPECT_EQ(ends_->sign().revoked, road::kStands);
  EXPECT_EQ(ends_->sign().calls, 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 9u);
  ends_->Send(arena_, 0);
  EXPECT_TRUE(Send(sender_, sending_, arena_, 1)->Get().ok());
  EXPECT_EQ(ends_->sign().revoked, road::kEnded);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 0u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
}

TEST_F(VerbsRoadTest, CountsWhatWasQueuedBeforeIt) {
  sender_ = Open();
  receiver_ = Open();
  arena_ = Arena(sender_, kMiB);
  sending_ = End(sender_, kSender, kCapacity);
  receiving_ = End(receiver_, kReceiver);
  for (uint64_t page = 0; page < 3; ++page) EXPECT_TRUE(Send(sender_, sending_, arena_, page)->Get().ok());
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 0u);
  ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  EXPECT_EQ(ends_->sign().calls, 3u) << "one received, two to come";
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_ON_ROAD");
}

TEST_F(VerbsRoadTest, CloseAndDeathComeAfterWhatStandsThere) {
  Build();
  ends_->Send(arena_, 4);
  Close(sender_, sending_);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 4u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_ENDED");
}

TEST_F(VerbsRoadTest, WhoReceivedAndHasGoneReadsNothing) {
  Build();
  ends_->Send(arena_, 0);
  ends_->Take();
  EXPECT_EQ(ends_->sign().gone, 0u);
  ends_->Send(arena_, 1);
  verbs().EndSession(receiver_.session);
  EXPECT_EQ(ends_->sign().gone, 1u);
  EXPECT_EQ(ends_->sign().taken, 1u);
  EXPECT_EQ(Send(sender_, sending_, arena_, 2)->Get().status().reason(), "NO_RECEIVER");
  v1::ReleaseRequest none;
  const auto told = verbs().Release(sender_, none);
  ASSERT_TRUE(told.ok());
  ASSERT_EQ(told->message.returned_size(), 1) << "what the broker took and nobody receives";
  EXPECT_EQ(told->message.returned(0).offset(), 4096u);
}

TEST_F(VerbsRoadTest, NothingIsLostForALimitThatNobodyAskedFor) {
  config_.limits.shares_per_namespace = 1;
  config_.limits.description_bytes_per_uid = 1;
  Build();
  for (uint64_t page = 0; page < 3; ++page) ends_->Send(arena_, page);
  EXPECT_EQ(Send(sender_, sending_, arena_, 3)->Get().status().reason(), "TOO_MANY_DESCRIPTION_BYTES");
  EXPECT_EQ(PageOf(Leave()), 0u);
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 1u);
  EXPECT_EQ(Send(sender_, sending_, arena_, 3)->Get().status().reason(), "TOO_MANY_SHARES");
  EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2u);
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_ENDED");
}

TEST_F(VerbsRoadTest, AHeadThatCannotBeIsBelievedInNothing) {
  Build();
  ends_->sent().head = kCapacity + 1;
  EXPECT_EQ(ReasonOf(Leave()), "CHANNEL_EMPTY");
  EXPECT_EQ(ends_->sign().revoked, road::kEnded);
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "SENDER_DIED") << "something may be missing";
}

TEST_F(VerbsRoadTest, ATailThatCannotBeIsBelievedInNothing) {
  Build();
  ends_->Send(arena_, 0);
  ends_->taken().tail = 2;
  EXPECT_EQ(verbs().Stats().queued_shares(), 0u);
  EXPECT_EQ(ReasonOf(Leave()), "CHANNEL_EMPTY");
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "SENDER_DIED");
}

TEST_F(VerbsRoadTest, EntriesThatNobodyCouldSendAreLeftOut) {
  Build();
  const Caller other = Open();
  const auto others = Arena(other, kMiB);
  ends_->Send(others, 0);
  ends_->Send(RoadEnds::Said(arena_, 0), "\xff\xff\xff no share");  // no message
  road::Message stale = RoadEnds::Said(arena_, 0);
  ++stale.generation;
  ends_->Send(stale);
  ends_->Send(arena_, 5);
  EXPECT_EQ(PageOf(Leave()), 5u);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_EMPTY");
  Close(sender_, sending_);
  EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "SENDER_DIED");
}

TEST_F(VerbsRoadTest, AnEntryLongerThanAnEntryIsNone) {
  Build();
  ends_->Send(arena_, 0);
  ends_->entry(0).words[0] = road::kDescriptionBytesMax + 1;
  ends_->Send(arena_, 1);
  ends_->entry(1).words[5] = road::kSlots;
  ends_->Send(arena_, 2);
  EXPECT_EQ(PageOf(Leave()), 2u);
}

TEST_F(VerbsRoadTest, TheReceiverIsGivenTheSendersArenasAndNoOthers) {
  Build();
  v1::ExportRequest request;
  request.set_arena(arena_.arena());
  request.set_arena_generation(arena_.generation());
  EXPECT_EQ(verbs().Export(receiver_, request).status().reason(), "ARENA_NOT_FOUND");
  request.set_road_of(receiving_);
  const auto exported = verbs().Export(receiver_, request);
  ASSERT_TRUE(exported.ok()) << exported.status().ToString();
  EXPECT_TRUE(exported->descriptor.valid());
  EXPECT_EQ(verbs().Export(Open(), request).status().reason(), "ARENA_NOT_FOUND") << "not its end";
  const Caller other = Open();
  const auto others = Arena(other, kMiB);
  request.set_arena(others.arena());
  request.set_arena_generation(others.generation());
  EXPECT_EQ(verbs().Export(receiver_, request).status().reason(), "ARENA_NOT_FOUND") << "not the sender's";
  const auto fresh = StartAllocate(sender_, kMiB)->Get();
  ASSERT_TRUE(fresh.ok());
  request.set_arena(fresh->message.handle().arena());
  request.set_arena_generation(fresh->message.handle().generation());
  EXPECT_EQ(verbs().Export(receiver_, request).status().reason(), "ARENA_NOT_FOUND") << "not sealed yet";
}

TEST_F(VerbsRoadTest, WhoeverEndsItWhatStandsThereIsQueuedOnce) {
  Build();
  const Caller far = Open(Door::kGrpc);
  for (uint64_t round = 0; round < 50; ++round) {
    ends_->Send(arena_, 2 * round);
    ends_->Send(arena_, 2 * round + 1);
    uint64_t joined = 0;
    std::thread joins([&] { joined = End(far, kSender); });
    auto left = Leave();
    joins.join();
    EXPECT_EQ(PageOf(std::move(left)), 2 * round);
    EXPECT_EQ(PageOf(Receive(receiver_, receiving_)), 2 * round + 1);
    EXPECT_EQ(ReasonOf(Receive(receiver_, receiving_)), "CHANNEL_EMPTY");
    Close(far, joined);
    ends_.reset();
    ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  }
}

TEST_F(VerbsRoadTest, TheBellRingsWhenItEnds) {
  Build();
  v1::BrowseRequest request;
  request.set_channel(receiving_);
  request.set_part(v1::BrowseRequest::ROAD_BELL);
  const auto bell = verbs().Browse(receiver_, request);
  ASSERT_TRUE(bell.ok());
  char byte = 0;
  EXPECT_EQ(::read(bell->descriptor.get(), &byte, 1), -1);
  Store(ends_->taken().asleep, 1, std::memory_order_relaxed);
  EXPECT_TRUE(Send(sender_, sending_, arena_, 0)->Get().ok());
  EXPECT_EQ(::read(bell->descriptor.get(), &byte, 1), 1) << "something comes by a call";
  Close(sender_, sending_);
  EXPECT_EQ(::read(bell->descriptor.get(), &byte, 1), 1);
}

}  // namespace
}  // namespace arraybridge

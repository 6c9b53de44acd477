// SPDX-License-Identifier: Apache-2.0
// Answers and descriptors that clients do not read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <thread>

#include "tests/unit/service/local_door_fixture.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

// A client that floods the door and reads no answers is cut; its neighbour is served meanwhile.
TEST_F(LocalDoorTest, ASlowReaderIsCutAndOthersAreServed) {
  config_.limits.output_frames_max = 8;
  LifelineClient other = Greeted();
  LifelineClient slow = Greeted();
  for (int i = 0; slow.Send(Verb::kGetServerInfo, "") == SendOutcome::kSent; ++i) {
    ASSERT_LT(i, 1'000'000) << "it was never cut";
    if (i % 64 != 0) continue;
    ASSERT_EQ(other.Call(Verb::kGetStats, v1::GetStatsRequest()).code(), Code::kOk);
  }
  AwaitSessions(other, 1);
  EXPECT_EQ(Stats(other).sessions_cut_total(), 1u);
}

TEST_F(LocalDoorTest, UnreadAnswersAreBoundedInBytes) {
  config_.limits.output_frames_max = 1'000'000;  // only the byte limit can end the client
  config_.limits.output_bytes_max = 4096;
  LifelineClient other = Greeted();
  LifelineClient slow = Greeted();
  for (int i = 0; slow.Send(Verb::kGetServerInfo, "") == SendOutcome::kSent; ++i) {
    ASSERT_LT(i, 100'000) << "it was never cut";
    if (i % 64 != 0) continue;
    ASSERT_EQ(other.Call(Verb::kGetStats, v1::GetStatsRequest()).code(), Code::kOk);
  }
  AwaitSessions(other, 1);
  EXPECT_EQ(Stats(other).sessions_cut_total(), 1u);
}

TEST_F(LocalDoorTest, ASlowReaderThatReadsAgainGetsEveryAnswerInOrder) {
  config_.limits.output_frames_max = 100'000;
  config_.limits.output_bytes_max = 64 << 20;
  LifelineClient client = Greeted();
  constexpr uint64_t kRequests = 3000;  // more than a socket holds
  std::thread sender([&] {
    for (uint64_t i = 1; i <= kRequests; ++i) client.Send(Verb::kGetServerInfo, "", i);
  });
  sender.join();
  for (uint64_t i = 1; i <= kRequests; ++i) ASSERT_EQ(client.Receive().header.request, i);
}

TEST_F(LocalDoorTest, UnreadDescriptorsAreBounded) {
  config_.limits.descriptors_in_flight_max = 4;
  LifelineClient client = Greeted();
  v1::AllocateRequest allocate;
  allocate.set_size(4096);
  const auto arena = client.Call(Verb::kAllocate, allocate);
  ASSERT_EQ(arena.code(), Code::kOk) << arena.error().message();
  ASSERT_TRUE(arena.descriptor.valid());
  const auto handle = arena.As<v1::AllocateResponse>().handle();
  v1::ExportRequest request;
  request.set_arena(handle.arena());
  request.set_arena_generation(handle.generation());
  // The number of descriptors is not bounded if the client reads each at once.
  for (int i = 0; i < 100; ++i) ASSERT_EQ(client.Call(Verb::kExport, request).code(), Code::kOk) << i;
  while (client.Send(Verb::kExport, request.SerializeAsString()) == SendOutcome::kSent) continue;
  LifelineClient other = Greeted();
  AwaitSessions(other, 1);
}

// One user does not read descriptors. It gets no more on any of its lifelines; other users are not affected. If an
// answer became a refusal, its grant is undone before the client learns of it.
class HoarderTest : public LocalDoorTest {
 protected:
  static constexpr uint32_t kHoarder = 7;
  static constexpr uint64_t kMost = 4;
  static constexpr uint64_t kAsked = 2 * kMost;

  HoarderTest() { config_.limits.descriptors_in_flight_per_uid = kMost; }

  v1::Handle Arena(LifelineClient& client) {
    v1::AllocateRequest allocate;
    allocate.set_size(4096);
    const auto arena = client.Call(Verb::kAllocate, allocate);
    EXPECT_EQ(arena.code(), Code::kOk) << arena.error().message();
    v1::MappedRequest mapped;
    mapped.set_arena(arena.As<v1::AllocateResponse>().handle().arena());
    EXPECT_EQ(client.Call(Verb::kMapped, mapped).code(), Code::kOk);
    return arena.As<v1::AllocateResponse>().handle();
  }
  // Returns when the unread descriptors have reached the limit.
  void Hoard(LifelineClient& hoarder, LifelineClient& witness) {
    const v1::Handle arena = Arena(hoarder);
    v1::ExportRequest request;
    request.set_arena(arena.arena());
    request.set_arena_generation(arena.generation());
    for (uint64_t i = 0; i < kAsked; ++i) hoarder.Send(Verb::kExport, request.SerializeAsString());
    v1::PublishRequest publish;
    publish.set_name("last");
    publish.set_arena(arena.arena());
    publish.set_arena_generation(arena.generation());
    publish.set_size(4096);
    v1::ArraySpec* spec = publish.mutable_specs()->add_arrays();
    spec->set_bits(8);
    spec->set_lanes(1);
    spec->add_shape(4096);
    spec->set_size(4096);
    hoarder.Send(Verb::kPublish, publish.SerializeAsString(), 1, kFrameNoReply);
    while (Stats(witness).publishes_total() == 0) ::usleep(100);
  }
  // The broker knows only an upper bound of the unread descriptors, so it may have sent a few less.
  void ReadAll(LifelineClient& hoarder) {
    uint64_t sent = 0;
    for (uint64_t i = 0; i < kAsked; ++i) sent += hoarder.Receive().descriptor.valid() ? 1 : 0;
    EXPECT_GE(sent, 1u);
    EXPECT_LE(sent, kMost);
  }
};

TEST_F(HoarderTest, AnArenaThatCannotBeHandedOverIsTakenBack) {
  LifelineClient witness = Greeted(8);
  LifelineClient hoarder = Greeted(kHoarder);
  LifelineClient sibling = Greeted(kHoarder);
  Hoard(hoarder, witness);
  v1::AllocateRequest allocate;
  allocate.set_size(4096);
  const auto refused = sibling.Call(Verb::kAllocate, allocate);
  ASSERT_EQ(refused.code(), Code::kResourceExhausted);
  const v1::Error why = refused.error();
  EXPECT_THAT(why.message(), HasSubstr("the most is 4)"));
  EXPECT_EQ(why.reason(), "DESCRIPTORS");
  EXPECT_FALSE(refused.descriptor.valid());
  while (Stats(witness).charged_bytes() != 4096) ::usleep(100);  // the hoarder's own arena
  Arena(witness);
  ReadAll(hoarder);
  Arena(sibling);
}

TEST_F(HoarderTest, LeasesThatCannotBeHandedOverAreTakenBack) {
  LifelineClient witness = Greeted(8);
  LifelineClient hoarder = Greeted(kHoarder);
  LifelineClient sibling = Greeted(kHoarder);
  Hoard(hoarder, witness);
  v1::AcquireRequest acquire;
  acquire.add_shares()->set_name("last");
  EXPECT_THAT(sibling.Call(Verb::kAcquire, acquire).error().message(), HasSubstr("too many unread descriptors"));
  EXPECT_EQ(Stats(witness).leases(), 0u);
  ReadAll(hoarder);
  EXPECT_TRUE(sibling.Call(Verb::kAcquire, acquire).descriptor.valid())
      << "the broker assumes that it was sent already";
}

TEST_F(HoarderTest, EachDescriptorOfAnAnswerCounts) {
  v1::BrowseRequest browse;
  browse.set_part(v1::BrowseRequest::QUEUE);
  LifelineClient one = Greeted(kHoarder);
  LifelineClient two = Greeted(kHoarder);
  for (LifelineClient* each : {&one, &two}) {
    each->Send(Verb::kBrowse, browse.SerializeAsString());
    pollfd answered{each->fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&answered, 1, 10'000), 1);
  }
  LifelineClient three = Greeted(kHoarder);
  EXPECT_EQ(three.Call(Verb::kBrowse, browse).error().reason(), "DESCRIPTORS") << "two answers with two each";
  EXPECT_EQ(one.Receive().more.size(), 1u);
  LifelineClient four = Greeted(kHoarder);
  EXPECT_EQ(four.Call(Verb::kBrowse, browse).more.size(), 1u);
  LifelineClient five = Greeted(kHoarder);
  EXPECT_EQ(five.Call(Verb::kBrowse, browse).more.size(), 1u) << "two of another answer are unread all the while";
}

TEST_F(HoarderTest, WhatIsUnreadCountsLongerThanItsLifeline) {
  LifelineClient witness = Greeted(8);
  LifelineClient hoarder = Greeted(kHoarder);
  LifelineClient sibling = Greeted(kHoarder);
  Hoard(hoarder, witness);
  hoarder.Send(Verb::kGetStats, "\xff");  // not a message: the client is cut, and keeps its end open
  AwaitSessions(witness, 2);
  v1::AllocateRequest allocate;
  allocate.set_size(4096);
  EXPECT_EQ(sibling.Call(Verb::kAllocate, allocate).code(), Code::kResourceExhausted);
  hoarder.Close();
  Arena(sibling);
}

}  // namespace
}  // namespace arraybridge::daemon

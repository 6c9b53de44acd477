// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "tests/unit/service/verbs_fixture.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::milliseconds;

class VerbsWatchTest : public VerbsTest {
 protected:
  using Watched = std::unique_ptr<Awaited<v1::WatchResponse>>;

  Watched Ask(const Caller& caller, const v1::WatchRequest& request) { return door().Watch(caller, request); }
  Watched Next(const Caller& caller, uint64_t watch, uint64_t timeout_ms = 0) {
    v1::WatchRequest request;
    request.set_watch(watch);
    request.set_timeout_ms(timeout_ms);
    return Ask(caller, request);
  }
  uint64_t Watch(const Caller& caller) {
    const auto opened = Ask(caller, {})->Get();
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened.ok() ? opened->message.watch() : 0;
  }
  static bool IsAnswered(const Watched& watched) {
    return watched->future.wait_for(milliseconds(0)) == std::future_status::ready;
  }
};

TEST_F(VerbsWatchTest, WhatHasComeIsAnsweredAtOnceAndWhatWillIsWaitedFor) {
  const Caller watcher = Open();
  const Caller maker = Open();
  const uint64_t watch = Watch(watcher);
  const auto waits = Next(watcher, watch, kLong);
  EXPECT_FALSE(IsAnswered(waits));
  const v1::Handle arena = Arena(maker, kMiB);
  const auto first = waits->Get();
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->message.watch(), watch);
  ASSERT_EQ(first->message.events_size(), 1);
  EXPECT_EQ(first->message.events(0).kind(), v1::EVENT_KIND_ALLOCATE);
  EXPECT_EQ(first->message.events(0).bytes(), kMiB);
  ASSERT_TRUE(Publish(maker, arena, "a").ok());
  const auto second = Next(watcher, watch)->Get();
  ASSERT_EQ(second->message.events_size(), 1);
  EXPECT_EQ(second->message.events(0).name(), "a");
  EXPECT_EQ(second->message.events(0).kind(), v1::EVENT_KIND_PUBLISH);
  EXPECT_EQ(Next(watcher, watch)->Get()->message.events_size(), 0);
  EXPECT_EQ(Next(watcher, watch, 1)->Get()->message.events_size(), 0);  // it timed out, which is no error
}

TEST_F(VerbsWatchTest, WhoWaitsIsAnsweredWhenTheBrokerDrainsAndNotWhenItsSessionEnds) {
  const Caller watcher = Open();
  const Caller ends = Open();
  const auto dropped = Next(ends, Watch(ends), kLong);
  verbs().sessions.EndSession(ends.session);
  const auto waits = Next(watcher, Watch(watcher), kLong);
  verbs().Drain();
  const auto drained = waits->Get();
  EXPECT_EQ(drained.status().reason(), "DRAINING");
  EXPECT_FALSE(IsAnswered(dropped));
  EXPECT_EQ(Ask(watcher, {})->Get().status().reason(), "DRAINING");
}

TEST_F(VerbsWatchTest, WhoIsCutIsToldSoWhileItWaits) {
  config_.limits.events_per_watcher = 0;
  const Caller watcher = Open();
  const auto waits = Next(watcher, Watch(watcher), kLong);
  Open();
  const auto cut = waits->Get();
  EXPECT_EQ(cut.status().reason(), "WATCH_CUT");
  EXPECT_EQ(cut.status().code(), Code::kResourceExhausted);
}

TEST_F(VerbsWatchTest, AWatchIsClosedOnceAndByItsSessionAlone) {
  const Caller watcher = Open();
  v1::WatchRequest close;
  close.set_watch(Watch(watcher));
  close.set_close(true);
  EXPECT_EQ(Ask(Open(), close)->Get().status().reason(), "WATCH_NOT_OPEN");
  EXPECT_TRUE(Ask(watcher, close)->Get().ok());
  EXPECT_EQ(Ask(watcher, close)->Get().status().reason(), "WATCH_NOT_OPEN");
  EXPECT_EQ(Next(watcher, close.watch())->Get().status().reason(), "WATCH_NOT_OPEN");
}

TEST_F(VerbsWatchTest, WhatMakesNoSenseIsRefusedWithAReason) {
  const Caller watcher = Open();
  v1::WatchRequest request;
  request.add_kinds(v1::EVENT_KIND_UNSPECIFIED);
  EXPECT_NE(Ask(watcher, request)->Get().status().message().find("event kind 0 is unknown"), std::string::npos);
  request.clear_kinds();
  request.add_kinds(static_cast<v1::EventKind>(70));
  EXPECT_NE(Ask(watcher, request)->Get().status().message().find("event kind 70"), std::string::npos);
  request.clear_kinds();
  request.set_close(true);
  EXPECT_EQ(Ask(watcher, request)->Get().status().code(), Code::kInvalidArgument);
  request.set_close(false);
  request.set_name_prefix(std::string(256, 'x'));
  EXPECT_NE(Ask(watcher, request)->Get().status().message().find("maximum 255"), std::string::npos);
  Caller deaf = watcher;
  deaf.hears = false;
  EXPECT_EQ(Ask(deaf, {})->Get().status().code(), Code::kInvalidArgument);
}

TEST_F(VerbsWatchTest, ANoteIsAShortTextOrRefused) {
  const Caller caller = Open();
  const v1::Handle arena = Arena(caller, kMiB);
  v1::PublishRequest publish = PublishOf(arena, "a", false, 0);
  publish.set_note(std::string(config_.limits.note_bytes_max + 1, 'x'));
  const auto refused = door().Publish(caller, publish);
  EXPECT_NE(refused.status().message().find("maximum 64"), std::string::npos) << refused.status().message();
  publish.set_note(std::string(config_.limits.note_bytes_max, 'x'));
  EXPECT_TRUE(door().Publish(caller, publish).ok());
  v1::AcquireRequest acquire;
  acquire.add_shares()->set_name("a");
  acquire.set_note(std::string(65, 'x'));
  EXPECT_EQ(door().Acquire(caller, acquire)->Get().status().code(), Code::kInvalidArgument);
}

// A caller that wants no answer cannot learn of a refusal, so the releases in the same request must be done.
TEST_F(VerbsWatchTest, NotesThatCannotBeDoNotKeepAReleaseFromItsWork) {
  const Caller caller = Open();
  const v1::Handle arena = Arena(caller, kMiB);
  v1::PublishRequest publish = PublishOf(arena, "a", false, 0);
  ASSERT_TRUE(door().Publish(caller, publish).ok());
  v1::AcquireRequest acquire;
  acquire.add_shares()->set_name("a");
  const auto acquired = door().Acquire(caller, acquire)->Get();
  ASSERT_TRUE(acquired.ok());
  v1::ReleaseRequest release;
  release.add_leases(acquired->message.shares(0).lease());
  release.add_notes()->set_note("line\nline");
  release.add_notes()->set_note(std::string(65, 'x'));
  for (uint64_t i = 0; i < config_.limits.names_per_request; ++i) release.add_notes();
  const auto released = door().Release(caller, release);
  ASSERT_TRUE(released.ok()) << released.status().ToString();
  EXPECT_EQ(released->message.released(), 1u);
}

TEST_F(VerbsWatchTest, WhatIsInspectedSaysHowItWasRead) {
  const Caller maker = Open();
  const Caller reader = Open();
  const v1::Handle arena = Arena(maker, kMiB);
  v1::PublishRequest publish = PublishOf(arena, "a", false, 0);
  publish.set_note("numpy place");
  ASSERT_TRUE(door().Publish(maker, publish).ok());
  v1::AcquireRequest acquire;
  acquire.add_shares()->set_name("a");
  acquire.set_note("torch hand_over");
  ASSERT_TRUE(door().Acquire(reader, acquire)->Get().ok());
  v1::InspectRequest request;
  request.mutable_share()->set_name("a");
  auto found = door().Inspect(maker, request);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->message.share().share().name(), "a");
  EXPECT_EQ(found->message.maker().note(), "numpy place");
  EXPECT_EQ(found->message.maker().session(), Number(maker.session));
  ASSERT_EQ(found->message.readers_size(), 1);
  EXPECT_EQ(found->message.readers(0).note(), "torch hand_over");
  EXPECT_EQ(found->message.offers_size(), 2);
  EXPECT_EQ(found->message.kinds(0), v1::HANDLE_KIND_MEMFD);

  v1::ReleaseRequest release;
  v1::ShareNote* note = release.add_notes();
  note->set_share(found->message.share().share().id());
  note->set_note("torch place: dtype");
  ASSERT_TRUE(door().Release(reader, release).ok());
  EXPECT_EQ(door().Inspect(maker, request)->message.readers(0).note(), "torch place: dtype");

  request.mutable_share()->set_name("b");
  EXPECT_EQ(door().Inspect(maker, request).status().reason(), "SHARE_NOT_FOUND");
  request.clear_share();
  EXPECT_EQ(door().Inspect(maker, request).status().code(), Code::kInvalidArgument);
}

TEST_F(VerbsWatchTest, OffersThatDoNotFitIntoTheAnswerAreCounted) {
  config_.limits.frame_bytes_max = 4096;
  const Caller maker = Open();
  for (int i = 0; i < 120; ++i) Open();
  ASSERT_TRUE(Publish(maker, Arena(maker, kMiB), "a").ok());
  v1::InspectRequest request;
  request.mutable_share()->set_name("a");
  const auto found = door().Inspect(maker, request);
  ASSERT_TRUE(found.ok());
  EXPECT_GT(found->message.offers_left_out(), 0u);
  EXPECT_EQ(found->message.offers_left_out() + found->message.offers_size(), 121u);
  EXPECT_LE(found->message.ByteSizeLong(), 4096u);
}

}  // namespace
}  // namespace arraybridge::daemon

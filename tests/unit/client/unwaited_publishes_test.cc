// SPDX-License-Identifier: Apache-2.0
// Unwaited publishes of a session, with the daemon's own pages and a test's broker.
#include "client/session/unwaited_publishes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "client/arenas/placement_range.h"
#include "daemon/memory/shared_pages/session_queue.h"
#include "tests/unit/client/quiet_session.h"
#include "tests/unit/client/static_mapping.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kAll = session_queue::Format::kSlots;

class UnwaitedPublishesTest : public ::testing::Test {
 protected:
  UnwaitedPublishesTest() {
    Handle handle;
    handle.arena = 1;
    handle.generation = 7;
    handle.arena_size = StaticMapping::kBytes;
    arena_ = std::make_shared<WrittenArena>(handle, std::make_unique<StaticMapping>(), false);
    Own(session_->written().Add(arena_, Carver::Granules(1)));
    first_ = range_;
    Own(*session_->written().Carve({}, Carver::Granules(1)));
  }
  ~UnwaitedPublishesTest() override { first_.reset(), range_.reset(), session_.Settle(); }

  void Own(const WrittenArenas::Carving& carving) {
    range_ = *session_->reclaimer().Adopt(std::make_unique<Placement::Range>(session_->shared_releases(), carving.arena,
                                                                             carving.offset, Carver::Granules(1)));
    range_->published = true;
  }
  FrameHeader Heard(Verb verb) {
    Frame frame;
    EXPECT_TRUE(session_.Hears(&frame));
    EXPECT_EQ(frame.header.verb, static_cast<uint16_t>(verb));
    return frame.header;
  }
  bool IsSilent() {
    Frame frame;
    return !session_.Hears(&frame);
  }
  // The broker provides the pages and takes requests from them.
  void Meet() {
    session_->lifeline().WantQueue();
    session_.Answer(Heard(Verb::kBrowse), *queue_->Export());
    ASSERT_TRUE(queue_->Seal([] {}).ok());
    queue_->Wake();
    session_.Answer(Heard(Verb::kMapped), Code::kOk);
    ASSERT_TRUE(session_->lifeline().has_queue());
  }
  UnwaitedPublishes& unwaited() { return session_->unwaited(); }
  bool Submit(std::string_view message = "a share", std::string_view name = "name") {
    return unwaited().Submit(message, name, range_);
  }
  // Serves at most so many requests. A request with the message "refused" fails.
  void Serve(uint64_t most = kAll) {
    const auto served =
        queue_->ServePublishes(most, SessionQueue::Others::kStop, [](uint64_t /*request*/, std::string_view message) {
          return message == "refused" ? AlreadyExists("it is there").Because("NAME_TAKEN") : Ok();
        });
    EXPECT_TRUE(served.ok());
  }
  void Confirm() { unwaited().Confirm(); }

  QuietSession session_;
  const std::unique_ptr<SessionQueue> queue_ = *SessionQueue::Create(1);
  std::shared_ptr<WrittenArena> arena_;
  std::shared_ptr<Placement::Range> first_;  // not published
  std::shared_ptr<Placement::Range> range_;
};

TEST_F(UnwaitedPublishesTest, NothingIsSubmittedBeforeTheBrokerTakesIt) {
  EXPECT_FALSE(Submit());
  EXPECT_EQ(unwaited().unconfirmed(), 0u);
  Meet();
  EXPECT_TRUE(Submit());
  EXPECT_EQ(unwaited().unconfirmed(), 1u);
  EXPECT_EQ(unwaited().submitted(), 1u);
  Serve();
  EXPECT_EQ(unwaited().unconfirmed(), 0u);
}

TEST_F(UnwaitedPublishesTest, WhereTheConnectionHasGoneNothingIsSubmitted) {
  Meet();
  session_.HangUp();
  while (session_->lifeline().alive()) continue;
  EXPECT_FALSE(Submit());
}

TEST_F(UnwaitedPublishesTest, TheDaemonIsWokenOnceForEachSleep) {
  Meet();
  EXPECT_TRUE(Submit());
  EXPECT_TRUE(IsSilent()) << "it polls";
  for (int sleep = 0; sleep < 2; ++sleep) {
    queue_->Announce();
    EXPECT_TRUE(Submit());
    EXPECT_NE(Heard(Verb::kDoorbell).flags & kFrameNoReply, 0);
    EXPECT_TRUE(Submit());
    EXPECT_TRUE(IsSilent());
  }
}

TEST_F(UnwaitedPublishesTest, ThoseThatTheDaemonHadServedAreThere) {
  Meet();
  ASSERT_TRUE(Submit("one", "served"));
  ASSERT_TRUE(Submit("two", "lost"));
  Serve(1);
  unwaited().GiveUp(Unavailable("gone"));
  EXPECT_EQ(session_.deferred_errors().Take().message(), "the unwaited publish of share 'lost' failed: gone");
  EXPECT_FALSE(Submit()) << "nothing would confirm it";
}

TEST_F(UnwaitedPublishesTest, AFullQueueTakesNoMoreUntilTheDaemonHasServedSome) {
  Meet();
  for (uint64_t i = 0; i < kAll; ++i) ASSERT_TRUE(Submit("short"));
  EXPECT_FALSE(Submit("one too many"));
  EXPECT_EQ(unwaited().unconfirmed(), kAll);
  Serve(1);
  EXPECT_TRUE(Submit("fits again"));
  EXPECT_FALSE(Submit());
  EXPECT_EQ(unwaited().submitted(), kAll + 1);
}

TEST_F(UnwaitedPublishesTest, AFailedOneIsToldAndItsRangeIsThereAgain) {
  Meet();
  ASSERT_TRUE(Submit("one", "fine"));
  ASSERT_TRUE(Submit("refused", "taken"));
  ASSERT_TRUE(Submit("refused", "taken too"));
  Serve(2);
  Confirm();
  EXPECT_FALSE(range_->published) << "it may be published by a call";
  const Status told = session_.deferred_errors().Take();
  EXPECT_EQ(told.code(), Code::kAlreadyExists);
  EXPECT_EQ(told.reason(), "NAME_TAKEN");
  EXPECT_EQ(told.message(), "the unwaited publish of share 'taken' failed: ALREADY_EXISTS, NAME_TAKEN");
  Confirm();
  EXPECT_TRUE(session_.deferred_errors().Take().ok()) << "the third was not served yet";
  unwaited().GiveUp(Unavailable("gone"));
  EXPECT_EQ(session_.deferred_errors().Take().message(), "the unwaited publish of share 'taken too' failed: gone");
}

TEST_F(UnwaitedPublishesTest, ARangeIsTheBrokersUntilItFailed) {
  Meet();
  ASSERT_TRUE(Submit("refused"));
  const uint64_t offset = range_->offset;
  range_.reset();
  session_.Settle();
  Own(*session_->written().Carve({}, Carver::Granules(1)));
  EXPECT_NE(range_->offset, offset) << "the broker may publish it yet";
  Serve();
  Confirm();
  Own(*session_->written().Carve({}, Carver::Granules(1)));
  EXPECT_EQ(range_->offset, offset);
}

}  // namespace
}  // namespace arraybridge::daemon

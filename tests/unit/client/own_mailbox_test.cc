// A mailbox as its client maps it, against the broker's own pages: who has it, when, and when it rests.
#include "client/own_mailbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/memory/mailbox.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

class OwnMailboxTest : public ::testing::Test {
 protected:
  std::unique_ptr<OwnMailbox> Map() {
    auto mapped = OwnMailbox::Map(*mailbox_->ExportRequests(), *mailbox_->ExportAnswers());
    EXPECT_TRUE(mapped.ok());
    EXPECT_TRUE(mailbox_->Seal().ok());
    mailbox_->Wake();
    return *std::move(mapped);
  }
  bool Await(OwnMailbox& own, uint64_t request) {
    FrameHeader header{};
    std::string message;
    const auto far = steady_clock::now() + std::chrono::hours(1);
    return own.Await(request, {std::chrono::microseconds(20), far, true}, &header, &message);
  }
  void Read() {
    FrameHeader header{};
    std::string_view message;
    ASSERT_TRUE(mailbox_->pending());
    EXPECT_TRUE(mailbox_->Take(buffer_, &header, &message).ok());
  }
  static FrameHeader Header(uint64_t request) { return {static_cast<uint16_t>(Verb::kList), 0, 0, request}; }

  const std::unique_ptr<Mailbox> mailbox_ = *Mailbox::Create();
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kFrameBytesMax);
};

TEST_F(OwnMailboxTest, ABrokerThatFallsAsleepJustThenIsWoken) {
  const auto own = Map();
  ASSERT_TRUE(own->Take(1, 0));
  ASSERT_TRUE(mailbox_->Sleep());
  EXPECT_FALSE(own->Ask(Header(1), ""));
}

TEST_F(OwnMailboxTest, ItIsTakenUntilTheBrokerHasReadIt) {
  const auto own = Map();
  ASSERT_TRUE(own->Take(1, 0));
  EXPECT_FALSE(own->Take(2, 0));
  EXPECT_TRUE(own->Ask(Header(1), ""));
  EXPECT_FALSE(Await(*own, 1)) << "nobody answered";
  EXPECT_TRUE(own->IsUnseen(1));
  EXPECT_FALSE(own->Take(2, 0));
  Read();
  EXPECT_FALSE(own->IsUnseen(1));
  EXPECT_TRUE(own->Take(2, 0));
  EXPECT_FALSE(own->IsUnseen(1)) << "it was seen, or nobody else could ask";
}

// One that answers late every time is asked by the socket, for longer and longer, until it answers in time again.
TEST_F(OwnMailboxTest, WhereTheBrokerIsSlowItRests) {
  const auto own = Map();
  uint64_t request = 0;
  const auto slow = [&] {
    uint64_t refused = 0;
    for (; !own->Take(++request, 0); ++refused) EXPECT_EQ(own->FlagsBySocket(true), kFrameMailboxRests);
    own->Ask(Header(request), "");
    EXPECT_FALSE(Await(*own, request));
    Read();
    return refused;
  };
  EXPECT_EQ(slow(), 0u);
  EXPECT_EQ(slow(), 0u) << "once is nothing";
  EXPECT_EQ(slow(), 64u);
  EXPECT_EQ(slow(), 128u);
  EXPECT_EQ(slow(), 256u);
}

// Who asks rarely: each time it finds a broker that has stopped looking.
TEST_F(OwnMailboxTest, WhoIsLookedForInVainRests) {
  const auto own = Map();
  mailbox_->Sleep();
  EXPECT_EQ(own->FlagsBySocket(true), 0) << "look";
  EXPECT_EQ(own->FlagsBySocket(true), 0) << "it slept again, once";
  EXPECT_EQ(own->FlagsBySocket(true), kFrameMailboxRests);
  for (uint32_t i = 1; i < Crowding::kRestMin; ++i) ASSERT_EQ(own->FlagsBySocket(true), kFrameMailboxRests);
  EXPECT_EQ(own->FlagsBySocket(true), 0);
  mailbox_->Wake();
  EXPECT_TRUE(own->Take(1, 0));
  EXPECT_EQ(own->FlagsBySocket(true), 0) << "another thread has it: that is not in vain";
  EXPECT_EQ(own->FlagsBySocket(false), kFrameMailboxRests) << "frames that nobody answers come between, every time";
}

// Who waits for a name, say: the broker was there at once.
TEST_F(OwnMailboxTest, WhereTheBrokerReadsAtOnceAndAnswersLateItDoesNotRest) {
  const auto own = Map();
  uint64_t request = 0;
  int turns = 0;
  for (int calm = 0; calm < 50; ++calm) {
    if (++turns > 1000) GTEST_SKIP() << "others want this processor all the time";
    while (!own->Take(++request, 0)) own->FlagsBySocket(true);
    own->Ask(Header(request), "");
    Read();
    const auto begun = steady_clock::now();
    EXPECT_FALSE(Await(*own, request));
    // Others wanted this processor: it may rest, and from then on all is as at first.
    if (steady_clock::now() - begun > Crowding::kShort) calm = -1;
    ASSERT_TRUE(calm < 1 || own->FlagsBySocket(true) == 0) << calm;
  }
}

TEST_F(OwnMailboxTest, WhatIsNoneIsNotMapped) {
  const UniqueFd plain(::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(plain.get(), sizeof(mailbox::Page)), 0);
  EXPECT_EQ(OwnMailbox::Map(plain, plain).status().code(), Code::kFailedPrecondition) << "it could shrink";
  ASSERT_EQ(::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(OwnMailbox::Map(plain, plain).status().code(), Code::kFailedPrecondition) << "layout 0";
  const auto own = mailbox_->ExportRequests();
  EXPECT_FALSE(OwnMailbox::Map(*own, UniqueFd()).ok());
}

}  // namespace
}  // namespace arraybridge

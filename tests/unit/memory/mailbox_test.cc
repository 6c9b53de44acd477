// The broker's side of a mailbox: what a session may write there, honest or not, and by which way it is answered.
#include "daemon/memory/mailbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/memory/mailbox_pages.h"

namespace arraybridge {
namespace {

class MailboxTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(mailbox_->Seal().ok()); }

  struct Taken {
    Status status;
    FrameHeader header{};
    std::string message;
  };
  Taken Take() {
    Taken taken;
    std::string_view message;
    taken.status = mailbox_->Take(buffer_, &taken.header, &message);
    taken.message = message;
    return taken;
  }
  bool Answer(uint64_t request, std::string_view message, uint32_t status = 0) {
    return mailbox_->Answer({static_cast<uint16_t>(Verb::kList), 0, status, request}, message);
  }

  const std::unique_ptr<Mailbox> mailbox_ = *Mailbox::Create();
  MailboxPages client_{*mailbox_->ExportRequests(), *mailbox_->ExportAnswers()};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kFrameBytesMax);
};

TEST_F(MailboxTest, ARequestComesOnceAndItsAnswerGoesBack) {
  EXPECT_FALSE(mailbox_->pending());
  std::string message;
  for (uint64_t request = 1; message.size() <= mailbox::kMessageBytesMax; ++request) {
    client_.Ask(Verb::kList, message, request, kFrameNoReply);
    ASSERT_TRUE(mailbox_->pending());
    EXPECT_NE(client_.taken(), request);
    const Taken taken = Take();
    EXPECT_FALSE(mailbox_->pending());
    EXPECT_EQ(client_.taken(), request);
    ASSERT_TRUE(taken.status.ok());
    ASSERT_EQ(taken.message, message);
    EXPECT_EQ(taken.header.request, request);
    EXPECT_EQ(taken.header.verb, static_cast<uint16_t>(Verb::kList));
    EXPECT_EQ(taken.header.flags, kFrameNoReply);
    EXPECT_TRUE(client_.is_awaited());
    ASSERT_TRUE(Answer(request, "to " + message.substr(0, 4000), 5));
    ASSERT_FALSE(client_.is_awaited());
    EXPECT_EQ(client_.answer(), "to " + message.substr(0, 4000));
    EXPECT_EQ(client_.head().status, 5u);
    message.append(request % 3 == 0 ? 97 : 1, static_cast<char>('a' + request % 26));
  }
}

TEST_F(MailboxTest, WhoHasGivenUpIsAnsweredByTheSocket) {
  client_.Ask(Verb::kList, "one", 1);
  Take();
  EXPECT_TRUE(mailbox::EndLook(client_.page(), 1));
  EXPECT_FALSE(Answer(1, "late"));
  client_.Ask(Verb::kList, "two", 2);
  Take();
  EXPECT_FALSE(Answer(1, "later still")) << "that would be taken for the answer to the second";
  EXPECT_TRUE(client_.is_awaited());
  EXPECT_TRUE(Answer(2, "two"));
  EXPECT_FALSE(Answer(1, "later still"));
  EXPECT_EQ(client_.answer(), "two") << "nor is it written over what is being read";
  EXPECT_FALSE(mailbox::EndLook(client_.page(), 2)) << "who gives up too late has the answer";
}

TEST_F(MailboxTest, WhatIsTooLongOrHasADescriptorGoesByTheSocketAndTheSessionLooksThere) {
  client_.Ask(Verb::kList, "", 1);
  Take();
  EXPECT_FALSE(Answer(1, std::string(mailbox::kMessageBytesMax + 1, 'x')));
  EXPECT_FALSE(client_.is_awaited());
  EXPECT_TRUE(client_.by_socket());
  client_.Ask(Verb::kList, "", 2);
  Take();
  ASSERT_TRUE(Answer(2, std::string(mailbox::kMessageBytesMax, 'x')));
  EXPECT_FALSE(client_.by_socket());
  client_.Ask(Verb::kList, "", 3);
  Take();
  mailbox_->Leave(2);
  EXPECT_TRUE(client_.is_awaited());
  mailbox_->Leave(3);
  EXPECT_FALSE(client_.is_awaited());
  EXPECT_TRUE(client_.by_socket());
}

TEST_F(MailboxTest, ARequestThatIsTooLongIsRefused) {
  client_.Ask(Verb::kList, "", 1);
  for (const uint64_t size : {uint64_t{mailbox::kMessageBytesMax} + 1, uint64_t{kFrameBytesMax}, ~uint64_t{0}}) {
    Store(client_.page().request.size, size, std::memory_order_relaxed);
    Store(client_.page().asked, size, std::memory_order_release);
    const Taken taken = Take();
    EXPECT_EQ(taken.status.code(), Code::kInvalidArgument);
    EXPECT_NE(taken.status.message().find(std::to_string(size)), std::string::npos) << taken.status.ToString();
  }
}

// Who has given up may ask the next as soon as it is told that the first was taken.
TEST_F(MailboxTest, WhatIsTakenIsCopied) {
  constexpr uint64_t kRounds = 2000;
  const auto message = [](uint64_t request) { return std::string(4000, static_cast<char>('a' + request % 26)); };
  std::thread session([&] {
    for (uint64_t request = 1; request <= kRounds; ++request) {
      client_.Ask(Verb::kList, message(request), request);
      while (client_.taken() != request) continue;
    }
  });
  uint64_t torn = 0;
  for (uint64_t request = 1; request <= kRounds;) {
    if (!mailbox_->pending()) continue;
    const Taken taken = Take();
    torn += taken.header.request != request || taken.message != message(request) ? 1 : 0;
    ++request;
  }
  session.join();
  EXPECT_EQ(torn, 0u);
}

// Whatever changes while it is copied: the copy has the length that was checked.
TEST_F(MailboxTest, WhoWritesWhileItIsReadSpoilsItsOwnRequestAlone) {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i) {
      Store(client_.page().request.size, i % 7 == 0 ? ~uint64_t{0} : i % mailbox::kMessageBytesMax,
            std::memory_order_relaxed);
      Store(client_.page().asked, i, std::memory_order_release);
      Store(client_.page().awaited, i % 3, std::memory_order_relaxed);
    }
  });
  int refused = 0, taken = 0;
  while (refused < 1000 || taken < 1000) {
    if (!mailbox_->pending()) continue;
    const Taken now = Take();
    now.status.ok() ? ++taken : ++refused;
    ASSERT_LE(now.message.size(), mailbox::kMessageBytesMax);
    Answer(now.header.request, now.message);
  }
  stop = true;
  writer.join();
}

TEST_F(MailboxTest, NobodySleepsOverARequest) {
  EXPECT_FALSE(client_.awake());
  EXPECT_FALSE(client_.Ask(Verb::kList, "", 1)) << "it has to be woken";
  mailbox_->Wake();
  EXPECT_TRUE(client_.awake());
  EXPECT_FALSE(mailbox_->Sleep()) << "there is a request";
  Take();
  mailbox_->Wake();
  EXPECT_TRUE(client_.Ask(Verb::kList, "", 2));
  Take();
  EXPECT_TRUE(mailbox_->Sleep());
  EXPECT_FALSE(client_.awake());
}

TEST_F(MailboxTest, OnceItIsMappedNobodyElseGetsIt) {
  EXPECT_EQ(mailbox_->ExportRequests().status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(mailbox_->ExportAnswers().status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(mailbox_->Seal().ok()) << "again";
}

TEST(UnsealedMailboxTest, NothingIsTakenBeforeTheSessionHasMappedItAndNobodyCanTakeItAway) {
  const auto mailbox = *Mailbox::Create();
  const UniqueFd requests = *mailbox->ExportRequests();
  const UniqueFd answers = *mailbox->ExportAnswers();
  MailboxPages client(requests, answers);
  client.Ask(Verb::kList, "early", 1);
  EXPECT_FALSE(mailbox->pending());
  mailbox->Wake();
  EXPECT_FALSE(client.awake());
  EXPECT_TRUE(mailbox->Sleep()) << "or who has not mapped it would keep the broker awake";
  EXPECT_EQ(::mmap(nullptr, sizeof(mailbox::Answers), PROT_READ | PROT_WRITE, MAP_SHARED, answers.get(), 0),
            MAP_FAILED);
  ASSERT_EQ(::fallocate(requests.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(mailbox::Page)), 0);
  ASSERT_TRUE(mailbox->Seal().ok());
  EXPECT_EQ(::ftruncate(requests.get(), 0), -1);
  EXPECT_EQ(::fallocate(requests.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(mailbox::Page)), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::mmap(nullptr, sizeof(mailbox::Page), PROT_READ | PROT_WRITE, MAP_SHARED, requests.get(), 0), MAP_FAILED);
  EXPECT_FALSE(mailbox->pending()) << "it has punched out what it asked before";
  client.Ask(Verb::kList, "now", 2);
  EXPECT_TRUE(mailbox->pending());
}

}  // namespace
}  // namespace arraybridge

// The client's side of a publish ring against a broker of the test's own, which may do what no broker does.
#include "client/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "client/arena.h"
#include "tests/unit/client/quiet_session.h"
#include "tests/unit/client/static_mapping.h"

namespace arraybridge {
namespace {

constexpr uint64_t kAll = ring::kEntries;

// A file of one page that this side writes as it likes.
template <class Page>
class OwnFile {
 public:
  OwnFile() : file(::memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    AB_CHECK(::ftruncate(file.get(), sizeof(Page)) == 0 && ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    base_ = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    AB_CHECK(base_ != MAP_FAILED);
    page().version = ring::kVersion;
  }
  ~OwnFile() { ::munmap(base_, sizeof(Page)); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  Page& page() { return *static_cast<Page*>(base_); }
  const UniqueFd file;

 private:
  void* base_ = nullptr;
};

class ClientRingTest : public ::testing::Test {
 protected:
  ClientRingTest() {
    Handle handle;
    handle.arena = 1;
    handle.generation = 7;
    handle.arena_size = StaticMapping::kBytes;
    arena_ = std::make_shared<WrittenArena>(handle, std::make_unique<StaticMapping>(), false);
    Own(session_->written().Add(arena_, Carver::Granules(1)));
    first_ = range_;
    Own(*session_->written().Carve({}, Carver::Granules(1)));
  }
  ~ClientRingTest() override { first_.reset(), range_.reset(), session_.Settle(); }

  void Own(const WrittenArenas::Carving& carving) {
    range_ = *session_->reaper().Adopt(
        std::make_unique<Placement::Range>(session_.shared(), carving.arena, carving.offset, Carver::Granules(1)));
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
  // The broker gives the pages, and says so or not.
  void Give(Code entries = Code::kOk, Code bell = Code::kOk) {
    ring().Foresee(*session_);
    const FrameHeader first = Heard(Verb::kBrowse);
    const FrameHeader second = Heard(Verb::kBrowse);
    session_.Answer(first, entries, entries == Code::kOk ? entries_.file.get() : -1);
    session_.Answer(second, bell, bell == Code::kOk ? bell_.file.get() : -1);
  }
  void Meet() {
    Give();
    session_.Answer(Heard(Verb::kMapped), Code::kOk);
  }
  Ring& ring() { return session_->ring(); }
  bool Enter(std::string_view message = "a share", std::string_view name = "name") {
    return ring().Enter(*session_, message, name, range_);
  }
  void TakeAll(uint64_t tail) { Store(bell_.page().tail, tail, std::memory_order_release); }
  std::string Entry(uint64_t index) {
    ring::Message copy;
    return std::string(ring::Read(entries_.page().entries[index % kAll], copy).value_or("too long"));
  }

  QuietSession session_;
  OwnFile<ring::Page> entries_;
  OwnFile<ring::Bell> bell_;
  std::shared_ptr<WrittenArena> arena_;
  std::shared_ptr<Placement::Range> first_;  // nobody publishes it
  std::shared_ptr<Placement::Range> range_;
};

TEST_F(ClientRingTest, ThePagesAreAskedForOnce) {
  ring().Foresee(*session_);
  ring().Foresee(*session_);
  Heard(Verb::kBrowse);
  Heard(Verb::kBrowse);
  EXPECT_TRUE(IsSilent());
}

TEST_F(ClientRingTest, NothingIsEnteredBeforeTheBrokerTakesIt) {
  EXPECT_FALSE(Enter());
  EXPECT_EQ(ring().unconfirmed(), 0u);
  Give();
  EXPECT_FALSE(Enter());
  EXPECT_EQ(ring().unconfirmed(), 0u);
  session_.Answer(Heard(Verb::kMapped), Code::kOk);
  EXPECT_TRUE(Enter());
  EXPECT_EQ(entries_.page().head, 1u);
  EXPECT_EQ(Entry(0), "a share");
  EXPECT_EQ(ring().unconfirmed(), 1u);
  EXPECT_EQ(ring().entered(), 1u);
}

TEST_F(ClientRingTest, ABrokerThatCannotSealThePagesTakesNothing) {
  Give();
  session_.Answer(Heard(Verb::kMapped), Code::kResourceExhausted);
  EXPECT_FALSE(Enter());
  ring().Look(*session_);
  ring().GiveUp(*session_, Unavailable("gone"));
  EXPECT_TRUE(session_.late_errors().Take().ok());
}

TEST_F(ClientRingTest, WithoutEitherPageThereIsNoRing) {
  Give(Code::kResourceExhausted);
  EXPECT_TRUE(IsSilent()) << "nothing is mapped";
  EXPECT_FALSE(Enter());
  ring().Look(*session_);
  ring().GiveUp(*session_, Unavailable("gone"));
}

TEST_F(ClientRingTest, ABellThatIsRefusedIsNone) {
  Give(Code::kOk, Code::kResourceExhausted);
  EXPECT_TRUE(IsSilent());
  EXPECT_FALSE(Enter());
}

TEST_F(ClientRingTest, PagesOfAnotherLayoutAreNone) {
  bell_.page().version = ring::kVersion + 1;
  Give();
  EXPECT_TRUE(IsSilent());
  EXPECT_FALSE(Enter());
}

TEST_F(ClientRingTest, PagesThatCouldShrinkAreNone) {
  const UniqueFd free(::memfd_create("free", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(free.get(), sizeof(ring::Page)), 0);
  const uint32_t version = ring::kVersion;
  ASSERT_EQ(::pwrite(free.get(), &version, sizeof version, offsetof(ring::Page, version)), 4);
  EXPECT_EQ(WrittenRing::Map(free, bell_.file).status().code(), Code::kFailedPrecondition)
      << "reading them is a SIGBUS";
  ASSERT_EQ(::fcntl(free.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(WrittenRing::Map(free, bell_.file).ok());
}

TEST_F(ClientRingTest, PagesAreUnmappedWithTheirRing) {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("memfd:ring") == std::string::npos ? 0 : 1;
    return count;
  };
  const int before = mappings();
  auto mapped = *WrittenRing::Map(entries_.file, bell_.file);
  EXPECT_EQ(mappings(), before + 2);
  mapped.reset();
  EXPECT_EQ(mappings(), before);
}

TEST_F(ClientRingTest, WhatDoesNotFitIsNotEntered) {
  Meet();
  EXPECT_FALSE(Enter(std::string(ring::kMessageBytesMax + 1, 'x')));
  EXPECT_EQ(entries_.page().head, 0u);
  EXPECT_TRUE(Enter(std::string(ring::kMessageBytesMax, 'x')));
}

TEST_F(ClientRingTest, WhoseConnectionHasGoneEntersNothing) {
  Meet();
  session_.HangUp();
  while (session_->lifeline().alive()) continue;
  EXPECT_FALSE(Enter());
}

TEST_F(ClientRingTest, TheBrokerIsWokenOnceASleep) {
  Meet();
  EXPECT_TRUE(Enter());
  EXPECT_TRUE(IsSilent()) << "it looks by itself";
  for (const uint64_t sleep : {1, 2}) {
    Store(bell_.page().asleep, sleep, std::memory_order_relaxed);
    EXPECT_TRUE(Enter());
    EXPECT_NE(Heard(Verb::kRing).flags & kFrameNoReply, 0);
    EXPECT_TRUE(Enter());
    EXPECT_TRUE(IsSilent());
  }
}

TEST_F(ClientRingTest, ABrokerThatReadsNothingIsWokenByALaterEntry) {
  Meet();
  while (session_->lifeline().Post(Verb::kRing, {}).ok()) continue;
  Store(bell_.page().asleep, 1, std::memory_order_relaxed);
  EXPECT_TRUE(Enter()) << "it stands there all the same";
  session_.Settle();
  EXPECT_TRUE(Enter());
  Heard(Verb::kRing);
}

TEST_F(ClientRingTest, WhatTheBrokerHadTakenIsThere) {
  Meet();
  ASSERT_TRUE(Enter("one", "taken"));
  ASSERT_TRUE(Enter("two", "lost"));
  TakeAll(1);
  ring().GiveUp(*session_, Unavailable("gone"));
  EXPECT_EQ(session_.late_errors().Take().message(), "share 'lost', which nobody waited for, was not published: gone");
}

TEST_F(ClientRingTest, AFullRingTakesNoMoreUntilTheBrokerHasTakenSome) {
  Meet();
  for (uint64_t i = 0; i < kAll; ++i) ASSERT_TRUE(Enter(std::to_string(i)));
  EXPECT_FALSE(Enter("one too many"));
  EXPECT_EQ(Entry(0), "0");
  EXPECT_EQ(ring().unconfirmed(), kAll);
  TakeAll(1);
  EXPECT_TRUE(Enter("fits again"));
  EXPECT_EQ(Entry(kAll), "fits again");
  EXPECT_FALSE(Enter());
  EXPECT_EQ(ring().entered(), kAll + 1);
}

TEST_F(ClientRingTest, ABrokerThatCountsAsNobodyCanIsLeft) {
  Meet();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Enter());
  TakeAll(2);
  ring().Look(*session_);
  EXPECT_FALSE(session_->lifeline().lost());
  TakeAll(4);
  EXPECT_FALSE(Enter()) << "it has taken more than there are";
  EXPECT_TRUE(session_->lifeline().lost());
  EXPECT_EQ(entries_.page().head, 3u);
  ring().GiveUp(*session_, Unavailable("the connection is lost"));
  EXPECT_EQ(session_.late_errors().Take().message(),
            "share 'name', which nobody waited for, was not published: the connection is lost");
}

TEST_F(ClientRingTest, ATailThatGoesBackIsNone) {
  Meet();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Enter());
  TakeAll(2);
  ring().Look(*session_);
  TakeAll(1);
  ring().Look(*session_);
  EXPECT_TRUE(session_->lifeline().lost());
}

TEST_F(ClientRingTest, WhatFailedIsToldAndItsRangeIsThereAgain) {
  Meet();
  ASSERT_TRUE(Enter("one", "fine"));
  ASSERT_TRUE(Enter("two", "taken"));
  ASSERT_TRUE(Enter("three", "fine too"));
  bell_.page().outcomes[1].code = static_cast<uint32_t>(Code::kAlreadyExists);
  bell_.page().outcomes[1].reason = {'N', 'A', 'M', 'E', '_', 'T', 'A', 'K', 'E', 'N'};
  bell_.page().outcomes[2].code = static_cast<uint32_t>(Code::kAlreadyExists);
  TakeAll(2);
  ring().Look(*session_);
  EXPECT_FALSE(range_->published) << "it may be published by a call";
  const Status told = session_.late_errors().Take();
  EXPECT_EQ(told.code(), Code::kAlreadyExists);
  EXPECT_EQ(told.reason(), "NAME_TAKEN");
  EXPECT_EQ(told.message(), "share 'taken', which nobody waited for, was not published: ALREADY_EXISTS, NAME_TAKEN");
  ring().Look(*session_);
  EXPECT_TRUE(session_.late_errors().Take().ok()) << "the third was not taken yet";
  ring().GiveUp(*session_, Unavailable("gone"));
  EXPECT_EQ(session_.late_errors().Take().message(),
            "share 'fine too', which nobody waited for, was not published: gone");
}

TEST_F(ClientRingTest, ARangeIsTheBrokersUntilItFailed) {
  Meet();
  ASSERT_TRUE(Enter());
  const uint64_t offset = range_->offset;
  range_.reset();
  session_.Settle();
  Own(*session_->written().Carve({}, Carver::Granules(1)));
  EXPECT_NE(range_->offset, offset) << "the broker may publish it yet";
  bell_.page().outcomes[0].code = static_cast<uint32_t>(Code::kNotFound);
  TakeAll(1);
  ring().Look(*session_);
  Own(*session_->written().Carve({}, Carver::Granules(1)));
  EXPECT_EQ(range_->offset, offset);
}

}  // namespace
}  // namespace arraybridge

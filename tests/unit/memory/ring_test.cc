// The broker's side of a publish ring: what a session may write there, honest or not, and what it is told.
#include "daemon/memory/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

namespace arraybridge {
namespace {

constexpr uint64_t kAll = ring::kEntries;

// A session's side, which writes what it likes.
class Writer {
 public:
  explicit Writer(const PublishRing& of) {
    auto entries = of.ExportEntries();
    auto bell = of.ExportBell();
    EXPECT_TRUE(entries.ok() && bell.ok());
    page_ = static_cast<ring::Page*>(
        ::mmap(nullptr, sizeof(ring::Page), PROT_READ | PROT_WRITE, MAP_SHARED, entries->get(), 0));
    bell_ = static_cast<const ring::Bell*>(::mmap(nullptr, sizeof(ring::Bell), PROT_READ, MAP_SHARED, bell->get(), 0));
    EXPECT_NE(page_, MAP_FAILED);
    EXPECT_NE(bell_, MAP_FAILED);
  }
  ~Writer() {
    ::munmap(page_, sizeof(ring::Page));
    ::munmap(const_cast<ring::Bell*>(bell_), sizeof(ring::Bell));
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  uint64_t Enter(std::string_view message) {
    ring::Write(page_->entries[head_ % kAll], message);
    return ring::Enter(*page_, ++head_, *bell_);
  }
  uint64_t tail() const { return Load(bell_->tail, std::memory_order_acquire); }
  const ring::Outcome& outcome(uint64_t entry) const { return bell_->outcomes[entry % kAll]; }
  ring::Page& page() { return *page_; }
  const ring::Bell& bell() const { return *bell_; }

 private:
  ring::Page* page_ = nullptr;
  const ring::Bell* bell_ = nullptr;
  uint64_t head_ = 0;
};

class RingTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(ring_->Seal().ok()); }

  Result<uint64_t> Drain(uint64_t most = kAll) {
    return ring_->Drain(most, [&](std::string_view message) -> std::optional<Status> {
      taken_.emplace_back(message);
      if (message == "nonsense") return std::nullopt;
      if (message != "refused") return Ok();
      return AlreadyExists("it is there").Because("A_REASON_THAT_IS_LONGER_THAN_THERE_IS_ROOM");
    });
  }

  const std::unique_ptr<PublishRing> ring_ = *PublishRing::Create();
  Writer writer_{*ring_};
  std::vector<std::string> taken_;
};

TEST_F(RingTest, WhatIsEnteredIsTakenOnceAndInOrder) {
  EXPECT_FALSE(ring_->pending());
  std::vector<std::string> entered;
  for (int round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < 200; ++i) {
      entered.push_back(std::string(i % (ring::kMessageBytesMax + 1), static_cast<char>('a' + i % 26)));
      writer_.Enter(entered.back());
    }
    EXPECT_TRUE(ring_->pending());
    EXPECT_EQ(*Drain(), 200u);
    EXPECT_EQ(writer_.tail(), entered.size());
    EXPECT_FALSE(ring_->pending());
  }
  EXPECT_EQ(taken_, entered);
}

TEST_F(RingTest, AFewAreTakenAtATime) {
  for (int i = 0; i < 100; ++i) writer_.Enter(std::to_string(i));
  EXPECT_EQ(*Drain(64), 64u);
  EXPECT_TRUE(ring_->pending());
  EXPECT_EQ(writer_.tail(), 64u);
  EXPECT_EQ(*Drain(64), 36u);
  EXPECT_EQ(*Drain(64), 0u);
}

TEST_F(RingTest, WhatBecameOfEachIsTold) {
  writer_.Enter("fine");
  writer_.Enter("refused");
  writer_.Enter("fine");
  ASSERT_EQ(*Drain(2), 2u);
  EXPECT_EQ(writer_.outcome(2).code, 0u) << "a long reason is no other entry's";
  ASSERT_EQ(*Drain(), 1u);
  EXPECT_EQ(writer_.outcome(0).code, 0u);
  EXPECT_EQ(writer_.outcome(1).code, static_cast<uint32_t>(Code::kAlreadyExists));
  EXPECT_EQ(writer_.outcome(1).because(), "A_REASON_THAT_IS_LONGER_THAN");
  EXPECT_EQ(writer_.outcome(2).code, 0u);
  for (uint64_t i = 3; i < kAll + 2; ++i) writer_.Enter("fine");
  ASSERT_TRUE(Drain().ok());
  EXPECT_EQ(writer_.outcome(kAll + 1).code, 0u) << "the place of the one that was refused";
  EXPECT_EQ(writer_.outcome(kAll + 1).because(), "");
}

TEST_F(RingTest, NothingIsTakenBeforeItIsSealed) {
  const auto ring = *PublishRing::Create();
  Writer early(*ring);
  early.Enter("early");
  EXPECT_FALSE(ring->pending());
  EXPECT_EQ(*ring->Drain(kAll, [](auto) { return Ok(); }), 0u);
  ASSERT_TRUE(ring->Seal().ok());
  ASSERT_TRUE(ring->Seal().ok()) << "as often as one likes";
  EXPECT_TRUE(ring->pending());
  EXPECT_EQ(*ring->Drain(kAll, [](auto) { return Ok(); }), 1u);
}

TEST_F(RingTest, NobodyElseWritesWhatIsSealed) {
  const auto ring = *PublishRing::Create();
  const auto entries = *ring->ExportEntries();
  ASSERT_TRUE(ring->Seal().ok());
  EXPECT_EQ(ring->ExportEntries().status().code(), Code::kFailedPrecondition);
  const auto map = [](const UniqueFd& file, int protection) {
    void* const base = ::mmap(nullptr, 4096, protection, MAP_SHARED, file.get(), 0);
    if (base != MAP_FAILED) ::munmap(base, 4096);
    return base != MAP_FAILED;
  };
  EXPECT_TRUE(map(entries, PROT_READ));
  EXPECT_FALSE(map(entries, PROT_READ | PROT_WRITE));
  EXPECT_NE(::fallocate(entries.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_NE(::ftruncate(entries.get(), 0), 0);
  const auto bell = *ring->ExportBell();
  EXPECT_TRUE(map(bell, PROT_READ));
  EXPECT_FALSE(map(bell, PROT_READ | PROT_WRITE));
  const UniqueFd opened(::open(("/proc/self/fd/" + std::to_string(bell.get())).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(opened.valid()) << "its owner may";
  EXPECT_FALSE(map(opened, PROT_READ | PROT_WRITE)) << "but for the broker's own mapping";
  for (const UniqueFd* file : {&entries, &opened}) {
    EXPECT_EQ(::fcntl(file->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
    EXPECT_EQ(errno, EPERM) << "nobody adds a seal of his own";
  }
}

TEST_F(RingTest, WhatWasPunchedOutBeforeTheSealIsThereAgain) {
  const auto ring = *PublishRing::Create();
  const auto entries = *ring->ExportEntries();
  ASSERT_EQ(::fallocate(entries.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(ring::Page)), 0);
  ASSERT_TRUE(ring->Seal().ok());
  struct stat info {};
  ASSERT_EQ(::fstat(entries.get(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, static_cast<int64_t>(sizeof(ring::Page)));
}

TEST_F(RingTest, AHeadThatCannotBeEndsIt) {
  for (const uint64_t head : {kAll + 1, uint64_t{1} << 40, ~uint64_t{0}}) {
    const auto ring = *PublishRing::Create();
    Writer hostile(*ring);
    ASSERT_TRUE(ring->Seal().ok());
    Store(hostile.page().head, head, std::memory_order_release);
    EXPECT_TRUE(ring->pending());
    EXPECT_EQ(ring->Drain(kAll, [](auto) { return Ok(); }).status().code(), Code::kInvalidArgument) << head;
    EXPECT_FALSE(ring->pending());
    EXPECT_EQ(*ring->Drain(kAll, [](auto) { return Ok(); }), 0u) << "told once";
    EXPECT_TRUE(ring->Sleep()) << "it keeps nobody awake";
    EXPECT_EQ(hostile.tail(), 0u);
  }
}

TEST_F(RingTest, AHeadThatGoesBackEndsIt) {
  for (int i = 0; i < 10; ++i) writer_.Enter("x");
  ASSERT_EQ(*Drain(), 10u);
  Store(writer_.page().head, 9, std::memory_order_release);
  EXPECT_EQ(Drain().status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(ring_->Seal().ok());
  EXPECT_EQ(*Drain(), 0u) << "whoever says again that it has mapped it";
}

TEST_F(RingTest, AnEntryThatIsTooLongEndsIt) {
  writer_.Enter("before");
  writer_.Enter("long");
  Store(writer_.page().entries[1].words[0], ring::kMessageBytesMax + 1, std::memory_order_relaxed);
  EXPECT_EQ(Drain().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(taken_, std::vector<std::string>{"before"});
  EXPECT_EQ(writer_.tail(), 1u);
}

TEST_F(RingTest, AnEntryThatIsNoRequestEndsIt) {
  writer_.Enter("nonsense");
  writer_.Enter("never");
  EXPECT_EQ(Drain().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*Drain(), 0u);
  EXPECT_EQ(taken_.size(), 1u);
}

TEST_F(RingTest, AnEntryThatChangesWhileItIsReadIsReadOnce) {
  std::atomic<bool> stop{false};
  std::thread liar([&] {
    for (uint64_t i = 0; !stop.load(); ++i) {
      for (uint64_t word = 0; word < ring::kEntryWords; ++word) {
        Store(writer_.page().entries[0].words[word], i % 2 == 0 ? 0x4141414141410010 : 0x4242424242427000,
              std::memory_order_relaxed);
      }
      Store(writer_.page().head, i % 2, std::memory_order_relaxed);
    }
  });
  // Each time it is what its length said when it was read, or it ends the ring; never more.
  for (int round = 0; round < 2000; ++round) {
    const auto drained = ring_->Drain(kAll, [](std::string_view message) -> std::optional<Status> {
      EXPECT_EQ(message.size(), 0x10u);
      return Ok();
    });
    if (!drained.ok()) break;
  }
  stop.store(true);
  liar.join();
}

TEST_F(RingTest, TheFirstEntryAfterAFallAsleepWakesIt) {
  EXPECT_NE(writer_.Enter("first"), 0u) << "it sleeps from the start";
  ring_->Wake();
  EXPECT_EQ(writer_.Enter("second"), 0u);
  EXPECT_FALSE(ring_->Sleep()) << "there is something";
  ring_->Wake();
  ASSERT_TRUE(Drain().ok());
  ASSERT_TRUE(ring_->Sleep());
  const uint64_t sleep = writer_.Enter("third");
  EXPECT_NE(sleep, 0u);
  EXPECT_EQ(writer_.Enter("fourth"), sleep) << "the same sleep: it was woken from that";
  ring_->Wake();
  ASSERT_TRUE(Drain().ok());
  ASSERT_TRUE(ring_->Sleep());
  EXPECT_NE(writer_.Enter("fifth"), sleep);
}

// Whoever sleeps although there is an entry, and was not told, would sleep for ever: this would not end.
TEST_F(RingTest, NoEntryIsMissedBetweenSleepAndWake) {
  constexpr uint64_t kEach = 20000;
  std::atomic<uint64_t> woken{0};
  std::thread session([&] {
    uint64_t last = 0;
    for (uint64_t i = 1; i <= kEach; ++i) {
      while (i - writer_.tail() > kAll) std::this_thread::yield();
      const uint64_t sleep = writer_.Enter("x");
      if (sleep == 0 || sleep == last) continue;
      last = sleep;
      woken.fetch_add(1);
      woken.notify_one();
    }
  });
  uint64_t seen = 0;
  uint64_t taken = 0;
  while (taken < kEach) {
    taken += *Drain(64);
    if (taken == kEach) break;
    if (ring_->pending() || !ring_->Sleep()) {
      ring_->Wake();
      continue;
    }
    woken.wait(seen);
    seen = woken.load();
    ring_->Wake();
  }
  session.join();
  EXPECT_EQ(writer_.tail(), kEach);
}

TEST_F(RingTest, WhatBecameOfAnEntryIsThereOnceItIsTaken) {
  constexpr uint64_t kEach = 50000;
  std::thread broker([&] {
    for (uint64_t taken = 0; taken < kEach;) {
      taken += *ring_->Drain(64, [&](std::string_view message) -> Status {
        return message == "refused" ? NotFound("no").Because("NO") : Ok();
      });
    }
  });
  uint64_t wrong = 0;
  uint64_t entered = 0;
  for (uint64_t seen = 0; seen < kEach; ++seen) {
    for (; entered < kEach && entered - seen < 8; ++entered) writer_.Enter(entered % 3 == 0 ? "refused" : "fine");
    while (writer_.tail() == seen) continue;
    wrong += (writer_.outcome(seen).code == 0) == (seen % 3 == 0) ? 1 : 0;
  }
  broker.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(RingTest, TwoWhoDrainTakeEachEntryOnce) {
  std::atomic<uint64_t> taken{0};
  std::atomic<bool> taking{false};
  const auto drain = [&] {
    while (taken.load() < 10000) {
      const auto drained = ring_->Drain(64, [&](auto) {
        EXPECT_FALSE(taking.exchange(true)) << "one after the other";
        if (taken.fetch_add(1) % 100 == 0) std::this_thread::yield();
        taking = false;
        return Ok();
      });
      ASSERT_TRUE(drained.ok());
    }
  };
  std::thread one(drain);
  std::thread other(drain);
  for (uint64_t i = 1; i <= 10000; ++i) {
    while (i - writer_.tail() > kAll) std::this_thread::yield();
    writer_.Enter(std::to_string(i));
  }
  one.join();
  other.join();
  EXPECT_EQ(taken.load(), 10000u);
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/boundary/reordering/machine.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>

#include "proto/boundary/shared_word.h"

namespace arraybridge {
namespace {

using machine::Machine;
using machine::Relaxed;
using machine::Weaker;
using machine::WithoutFence;
using machine::WithoutStore;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSeqCst = std::memory_order_seq_cst;

struct MachineTest : testing::Test {
  // Whether a run of these threads ends so.
  bool Ends(std::vector<Machine::Code> threads, const std::function<bool()>& so, const Weaker& weaker = {}) const {
    bool found = false;
    Machine(std::move(threads), weaker).Explore([&] { found = found || so(); });
    return found;
  }

  uint64_t x = 0;
  uint64_t y = 0;
  std::array<uint64_t, 4> read{};  // by the threads
};

// Two threads: each stores to its own place, reads it, and reads the other's.
struct StoreBuffers : MachineTest {
  std::vector<Machine::Code> Threads(std::memory_order store, bool fence = false) {
    const auto thread = [=, this](uint64_t& own, const uint64_t& other, size_t at) {
      Store(own, 1, store);
      if (fence) ThreadFence(kSeqCst);
      read[at] = Load(own, kAcquire);
      read[at + 1] = Load(other, kRelaxed);
    };
    return {[=, this] { thread(x, y, 0); }, [=, this] { thread(y, x, 2); }};
  }
  std::function<bool()> BothReadNothing() {
    return [this] { return read[1] == 0 && read[3] == 0; };
  }
};

TEST_F(StoreBuffers, ForwardAStoreToALaterAcquireLoad) {
  EXPECT_TRUE(Ends(Threads(kRelaxed), BothReadNothing()));
  EXPECT_TRUE(Ends(Threads(kRelease), BothReadNothing()));
  EXPECT_FALSE(Ends(Threads(kRelaxed), [this] { return read[0] != 1 || read[2] != 1; }));
}

TEST_F(StoreBuffers, AreEmptyBehindAFence) {
  EXPECT_FALSE(Ends(Threads(kRelaxed, true), BothReadNothing()));
  EXPECT_TRUE(Ends(Threads(kRelaxed, true), BothReadNothing(), WithoutFence(0, 0)));
  EXPECT_TRUE(Ends(Threads(kRelaxed, true), BothReadNothing(), WithoutFence(1, 0)));
}

TEST_F(MachineTest, AThreadReadsItsOwnLastStore) {
  const auto own = [this] {
    Store(x, 1, kRelaxed);
    Store(x, 2, kRelaxed);
    read[0] = Load(x, kRelaxed);
  };
  EXPECT_FALSE(Ends({own}, [this] { return read[0] != 2; }));
}

TEST_F(MachineTest, TwoLoadsOfAPlaceDoNotReadBackwards) {
  const auto reads = [this] {
    Store(x, 1, kRelaxed);
    read[0] = Load(x, kRelaxed);
    read[1] = Load(x, kRelaxed);
  };
  const auto writes = [this] { Store(x, 2, kRelaxed); };
  EXPECT_FALSE(Ends({reads, writes}, [this] { return read[0] == 2 && read[1] == 1; }));
  EXPECT_TRUE(Ends({reads, writes}, [this] { return read[0] == 1 && read[1] == 2; }));
}

// The first thread stores to x, then to y; the second reads y, then x.
struct Message : MachineTest {
  std::vector<Machine::Code> Threads(std::memory_order store, std::memory_order load, bool fences = false) {
    const auto sends = [=, this] {
      Store(x, 1, kRelaxed);
      if (fences) ThreadFence(kRelease);
      Store(y, 1, store);
    };
    const auto receives = [=, this] {
      read[0] = Load(y, load);
      if (fences) ThreadFence(kAcquire);
      read[1] = Load(x, kRelaxed);
    };
    return {sends, receives};
  }
  std::function<bool()> IsTorn() {
    return [this] { return read[0] == 1 && read[1] == 0; };
  }
};

TEST_F(Message, ArrivesWholeByReleaseAndAcquire) {
  EXPECT_FALSE(Ends(Threads(kRelease, kAcquire), IsTorn()));
  EXPECT_TRUE(Ends(Threads(kRelaxed, kAcquire), IsTorn()));
  EXPECT_TRUE(Ends(Threads(kRelease, kRelaxed), IsTorn()));
  EXPECT_TRUE(Ends(Threads(kRelease, kAcquire), IsTorn(), Relaxed(0, &y)));
  EXPECT_TRUE(Ends(Threads(kRelease, kAcquire), IsTorn(), Relaxed(1, &y)));
}

TEST_F(Message, ArrivesWholeByFences) {
  EXPECT_FALSE(Ends(Threads(kRelaxed, kRelaxed, true), IsTorn()));
  EXPECT_TRUE(Ends(Threads(kRelaxed, kRelaxed, true), IsTorn(), WithoutFence(0, 0)));
  EXPECT_TRUE(Ends(Threads(kRelaxed, kRelaxed, true), IsTorn(), WithoutFence(1, 0)));
}

// Each thread reads a place, then stores to the other one.
TEST_F(MachineTest, AStorePassesAnEarlierLoad) {
  const auto both_read_the_other = [this] { return read[0] == 1 && read[1] == 1; };
  const auto thread = [this](const uint64_t& from, uint64_t& to, size_t at, std::memory_order store) {
    read[at] = Load(from, kRelaxed);
    Store(to, 1, store);
  };
  const auto threads = [&](std::memory_order store) -> std::vector<Machine::Code> {
    return {[=, this] { thread(x, y, 0, store); }, [=, this] { thread(y, x, 1, store); }};
  };
  EXPECT_TRUE(Ends(threads(kRelaxed), both_read_the_other));
  EXPECT_FALSE(Ends(threads(kRelease), both_read_the_other));
}

TEST_F(MachineTest, ABranchFollowsWhatWasRead) {
  const auto copies = [this] {
    if (Load(x, kAcquire) == 7) Store(y, 1, kRelaxed);
  };
  const auto writes = [this] { Store(x, 7, kRelease); };
  uint64_t runs = 0;
  Machine both({copies, writes});
  both.Explore([&] {
    ++runs;
    EXPECT_EQ(both.Final(x), 7u);
  });
  EXPECT_EQ(runs, 2u) << "y is stored, or not";
  uint64_t alone = 0;
  Machine without({copies, writes}, WithoutStore(1, &x));
  without.Explore([&] {
    ++alone;
    EXPECT_EQ(without.Final(x), 0u);
    EXPECT_EQ(without.Final(y), 0u);
  });
  EXPECT_EQ(alone, 1u);
}

TEST_F(MachineTest, OutsideOfItTheWordsAreThemselves) {
  Store(x, 3, kRelaxed);
  EXPECT_EQ(x, 3u);
  EXPECT_EQ(Load(x, kRelaxed), 3u);
  bool judged = false;
  Machine({[this] { read[0] = Load(x, kRelaxed); }}).Explore([&] {
    judged = true;
    EXPECT_EQ(read[0], 3u);
  });
  EXPECT_TRUE(judged);
}

}  // namespace
}  // namespace arraybridge

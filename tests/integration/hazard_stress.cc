// SPDX-License-Identifier: Apache-2.0
// A stress test of hazard slots. A broker withdraws shares and overwrites their bytes as soon as no process holds them.
// Other processes hold shares, read every word, and release them. Prints one line of numbers; stale: words that did not
// belong to the share.
//
// hazard_stress ORDER ACQUISITIONS SECONDS READERS [STOP]
// ORDER: safe, or a control that must fail: no_fence, no_hold. Ends after so many acquisitions or seconds, whichever
// comes first; with STOP also at the first stale word.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/catalogue/hazard_table.h"
#include "daemon/memory/shared_pages/catalogue.h"
#include "daemon/memory/shared_pages/hazard_page.h"

namespace arraybridge::daemon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kNames = 48;
constexpr uint64_t kBlocks = 64;
constexpr uint64_t kWords = 128;  // of a block
constexpr uint64_t kBatch = 256;

struct NoFence {
  static void AfterHold() { std::atomic_signal_fence(std::memory_order_seq_cst); }
  static constexpr bool kHolds = true;
};
struct NoHold {
  static void AfterHold() {}
  static constexpr bool kHolds = false;
};

struct Shared {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> acquired{0};
  std::atomic<uint64_t> missed{0};
  std::atomic<uint64_t> stale{0};
  std::array<std::array<std::atomic<uint64_t>, kWords>, kBlocks> blocks{};
};

uint64_t WordOf(uint64_t block, uint64_t share, uint64_t index) {
  uint64_t word = block * 0x9E3779B97F4A7C15 ^ share * 0xC2B2AE3D27D4EB4F ^ index;
  word ^= word >> 29;
  return word * 0xBF58476D1CE4E5B9;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(88172645463325252 + seed * 7919) {}
  uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_;
};

template <class Order>
class Reader {
 public:
  using Table = BasicHazardTable<Order>;

  Reader(const Catalogue& catalogue, const HazardPage& page, Shared& shared, uint64_t seed)
      : table_(*ReadCatalogue::Map(*catalogue.Export()), *MappedHazardPage::Map(*page.Export())),
        shared_(shared),
        random_(seed) {
    for (uint64_t name = 0; name < kNames; ++name) hashes_.push_back(table_.catalogue().HashOf(std::to_string(name)));
  }

  void Run() {
    while (!shared_.stop.load(std::memory_order_relaxed)) {
      uint64_t acquired = 0;
      uint64_t missed = 0;
      for (uint64_t i = 0; i < kBatch; ++i) {
        const uint64_t random = random_();
        if (held_.size() <= random >> 60) Acquire(random >> 20, acquired, missed);
        if (!held_.empty() && (random & 3) != 0) Release(random >> 8);
        if (random >> 50 == 0) ::sched_yield();
      }
      shared_.acquired.fetch_add(acquired, std::memory_order_relaxed);
      shared_.missed.fetch_add(missed, std::memory_order_relaxed);
    }
  }

 private:
  void Acquire(uint64_t random, uint64_t& acquired, uint64_t& missed) {
    auto hold = table_.Take(hashes_[random % kNames]);
    if (!hold) return static_cast<void>(++missed);
    ++acquired;
    Check(hold);
    held_.push_back(std::move(hold));
  }
  void Release(uint64_t random) {
    auto& one = held_[random % held_.size()];
    Check(one);
    std::swap(one, held_.back());
    held_.pop_back();
  }
  void Check(const typename Table::HazardSlot& hold) {
    const auto facts = catalogue::Read(hold.record());
    const auto& block = shared_.blocks[facts.offset % kBlocks];
    for (uint64_t i = 0; i < kWords; ++i) {
      if (block[i].load(std::memory_order_relaxed) == WordOf(facts.offset, facts.share, i)) continue;
      shared_.stale.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }

  Table table_;
  Shared& shared_;
  Random random_;
  std::vector<Hash128> hashes_;
  std::vector<typename Table::HazardSlot> held_;
};

// The broker, which withdraws shares and reuses ranges that no process holds.
class Writer {
 public:
  Writer(Catalogue& catalogue, const std::vector<std::unique_ptr<HazardPage>>& pages, Shared& shared)
      : catalogue_(catalogue), pages_(pages), shared_(shared), names_(kNames) {
    for (uint64_t block = 0; block < kBlocks; ++block) free_.push_back(block);
    for (uint64_t name = 0; name < kNames; ++name) Publish(name);
  }

  void Step() {
    const uint64_t random = random_();
    const uint64_t name = random % kNames;
    if (names_[name]) Withdraw(*std::exchange(names_[name], std::nullopt));
    if (random >> 61 == 0) LookAgain();
    Publish(name);
    const uint64_t other = (random >> 40) % kNames;
    if (!names_[other]) Publish(other);
  }
  void LookAgain() {
    std::erase_if(waiting_, [this](const Published& one) { return FreeIfUnheld(one); });
  }

  uint64_t published() const { return share_; }
  uint64_t waited() const { return waited_; }
  uint64_t waiting() const { return waiting_.size(); }

 private:
  struct Published {
    CatalogueEntry entry;
    uint64_t block = 0;
  };

  void Publish(uint64_t name) {
    if (free_.empty()) return;
    const uint64_t block = free_.back();
    const uint64_t share = ++share_;
    for (uint64_t i = 0; i < kWords; ++i) {
      shared_.blocks[block][i].store(WordOf(block, share, i), std::memory_order_relaxed);
    }
    const std::string text = std::to_string(name);
    CatalogueRow row;
    row.name = text;
    row.offset = block;
    row.share = share;
    const auto entry = catalogue_.Put(row);
    if (!entry) return;
    free_.pop_back();
    names_[name] = Published{*entry, block};
  }
  void Withdraw(const Published& one) {
    catalogue_.Retire(one.entry);
    if (FreeIfUnheld(one)) return;
    ++waited_;
    waiting_.push_back(one);
  }
  bool FreeIfUnheld(const Published& one) {
    for (const auto& page : pages_) {
      if (page->Has(one.entry.hazard_word())) return false;
    }
    catalogue_.Free(one.entry);
    free_.push_back(one.block);
    return true;
  }

  Catalogue& catalogue_;
  const std::vector<std::unique_ptr<HazardPage>>& pages_;
  Shared& shared_;
  Random random_{42};
  std::vector<std::optional<Published>> names_;
  std::vector<Published> waiting_;
  std::vector<uint64_t> free_;
  uint64_t share_ = 0;
  uint64_t waited_ = 0;
};

struct Wish {
  std::string order;
  uint64_t acquisitions = 0;
  std::chrono::seconds time{0};
  uint64_t readers = 0;
  bool stop_at_stale = false;
};

bool Reached(const Wish& wish, const Shared& shared, Clock::time_point begun) {
  if (wish.stop_at_stale && shared.stale.load(std::memory_order_relaxed) != 0) return true;
  if (shared.acquired.load(std::memory_order_relaxed) >= wish.acquisitions) return true;
  return Clock::now() - begun >= wish.time;
}

template <class Order>
int Run(const Wish& wish) {
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto& shared = *new (memory) Shared;
  const auto catalogue = *Catalogue::Create(kBlocks + kNames, {});
  std::vector<std::unique_ptr<HazardPage>> pages;
  for (uint64_t i = 0; i < wish.readers; ++i) pages.push_back(*HazardPage::Create());
  Writer writer(*catalogue, pages, shared);
  std::vector<pid_t> readers;
  for (uint64_t i = 0; i < wish.readers; ++i) {
    readers.push_back(::fork());  // must be called while this process has one thread
    if (readers.back() != 0) continue;
    Reader<Order>(*catalogue, *pages[i], shared, i).Run();
    ::_exit(0);
  }
  const auto begun = Clock::now();
  while (!Reached(wish, shared, begun)) {
    for (uint64_t i = 0; i < kBatch; ++i) writer.Step();
  }
  shared.stop = true;
  for (const pid_t reader : readers) ::waitpid(reader, nullptr, 0);
  pages.clear();  // of processes that have ended
  writer.LookAgain();
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  std::printf("order=%s acquired=%" PRIu64 " missed=%" PRIu64 " stale=%" PRIu64 " published=%" PRIu64 " waited=%" PRIu64
              " waiting=%" PRIu64 " seconds=%.1f\n",
              wish.order.c_str(), shared.acquired.load(), shared.missed.load(), shared.stale.load(), writer.published(),
              writer.waited(), writer.waiting(), seconds);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc < 5) return 2;
  const Wish wish{argv[1], std::strtoull(argv[2], nullptr, 10), std::chrono::seconds(std::atoi(argv[3])),
                  std::strtoull(argv[4], nullptr, 10), argc > 5};
  if (wish.order == "safe") return Run<hazard::Ordering>(wish);
  if (wish.order == "no_fence") return Run<NoFence>(wish);
  if (wish.order == "no_hold") return Run<NoHold>(wish);
  return 2;
}

}  // namespace
}  // namespace arraybridge::daemon

int main(int argc, char** argv) { return arraybridge::daemon::Main(argc, argv); }

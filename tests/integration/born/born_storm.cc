// SPDX-License-Identifier: Apache-2.0
// Several threads allocate blocks of a BornHeap, write, resize, publish, replace and free them, and read what they have
// published, while the process forks. No share ever changes, no block is given away twice, and a child sees the arrays
// as they were at the fork.
//   born_storm ADDRESS SECONDS THREADS      prints "published N born N children N", or what is wrong
// Names are those of the process, so that a second one may run beside, and be killed.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <arraybridge/born/heap.h>
#include <arraybridge/born/keep_writing.h>
#include <arraybridge/broker.h>

// ThreadSanitizer takes an mmap over mapped pages for a write of all of them. To the kernel it is none: a thread that
// writes there meanwhile writes the same page of the file before it, or its own copy of that page after it. It often
// does not know any more where that was. So it looks at the heap alone; the stamps tell of blocks that are given twice.
extern "C" __attribute__((visibility("default"))) const char*
__tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier): its name
  return "race:BornMapping::MapPrivate\nrace:BornMapping::Join\nrace:IsOwn\nrace:Write\nrace:StampOf\nrace:CopyBytes\n";
}

namespace arraybridge {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kSmall = 4096;
constexpr uint64_t kLarge = 4 << 20;
constexpr int kNames = 8;

[[noreturn]] void Fail(const std::string& what) {
  std::printf("wrong: %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

// Memory of the heap, or of malloc if it has none, all of whose words are `stamp`.
class Block {
 public:
  Block(BornHeap& heap, uint64_t words, uint64_t stamp) : heap_(heap), words_(words) {
    data_ = reinterpret_cast<uint64_t*>(heap.TryAllocate(words * sizeof stamp).data);
    born_ = data_ != nullptr;
    if (!born_) data_ = static_cast<uint64_t*>(std::aligned_alloc(kSmall, words * sizeof stamp));
    if (data_ == nullptr) Fail("malloc has no memory");
    Write(stamp);
  }
  ~Block() {
    if (!born_) std::free(data_);
    if (born_ && !heap_.Free(data_)) Fail("the heap does not know its own block");
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool born() const { return born_; }
  uint64_t words() const { return words_; }
  void Write(uint64_t stamp) {
    for (uint64_t i = 0; i < words_; ++i) data_[i] = stamp;
    stamp_ = stamp;
  }
  // Another thread, or a later owner of the same memory, has written it.
  bool IsOwn() const { return data_[0] == stamp_ && data_[words_ / 2] == stamp_ && data_[words_ - 1] == stamp_; }
  View view() const {
    return *Describe(data_, {1, 64, 1}, {static_cast<int64_t>(words_)}, {}, Device{}, true, nullptr);
  }

 private:
  BornHeap& heap_;
  const uint64_t words_;
  uint64_t stamp_ = 0;
  uint64_t* data_ = nullptr;
  bool born_ = false;
};

// The one value of all words of a share.
uint64_t StampOf(const View& view) {
  const auto* const words = static_cast<const uint64_t*>(view.data);
  const uint64_t count = view.nbytes() / sizeof(uint64_t);
  for (uint64_t i = 1; i < count; ++i) {
    if (words[i] != words[0]) Fail("a share has words of two versions");
  }
  return words[0];
}

struct Counts {
  std::atomic<uint64_t> published{0};
  std::atomic<uint64_t> born{0};
  std::atomic<uint64_t> children{0};
  std::atomic<uint64_t> stamps{1};
};

class Worker {
 public:
  Worker(Broker& broker, BornHeap& heap, Counts& counts, int number)
      : broker_(broker), heap_(heap), counts_(counts), random_(static_cast<unsigned>(number) + 1) {
    name_ = "storm-" + std::to_string(::getpid()) + "-" + std::to_string(number) + "-";
  }

  void Step() {
    switch (random_() % 6) {
      case 0:
      case 1:
        return Allocate();
      case 2:
        return Resize();
      case 3:
        return Publish();
      case 4:
        return Read();
      default:
        return Drop();
    }
  }
  bool AllAreOwn() const {
    return std::ranges::all_of(blocks_, [](const auto& block) { return block->IsOwn(); });
  }
  ~Worker() {
    for (int i = 0; i < kNames; ++i) static_cast<void>(broker_.Withdraw({.name = name_ + std::to_string(i)}));
  }

 private:
  uint64_t Words() {
    const uint64_t bytes = random_() % 4 == 0 ? kLarge : kSmall << random_() % 8;
    return bytes / sizeof(uint64_t);
  }
  void Allocate() {
    if (blocks_.size() > 12) return Drop();
    blocks_.push_back(std::make_unique<Block>(heap_, Words(), ++counts_.stamps));
    counts_.born += blocks_.back()->born();
  }
  // As a framework's realloc that moves: a copy, and the old block is freed.
  void Resize() {
    if (blocks_.empty()) return;
    auto& block = blocks_[random_() % blocks_.size()];
    block = std::make_unique<Block>(heap_, Words(), ++counts_.stamps);
    counts_.born += block->born();
  }
  void Drop() {
    if (blocks_.empty()) return;
    const size_t at = random_() % blocks_.size();
    if (!blocks_[at]->IsOwn()) Fail("a block was written by another thread");
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // In place if that is possible. The maker writes on only after KeepWriting, or after a copy.
  void Publish() {
    if (blocks_.empty()) return;
    const size_t at = random_() % blocks_.size();
    Block& block = *blocks_[at];
    const View view = block.view();
    const Broker::PublishOptions options{.name = name_ + std::to_string(random_() % kNames), .replace = true};
    std::string_view why;
    const auto place = broker_.PlacementOf({&view, 1}, &why);
    const bool keeps = random_() % 2 == 0;
    if (place && (!keeps || KeepWriting(*place))) {
      if (broker_.Publish(*place, options).ok()) ++counts_.published;
      if (keeps) return block.Write(++counts_.stamps);
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
    if (broker_.Put({&view, 1}, options).ok()) ++counts_.published;
    block.Write(++counts_.stamps);
  }
  // Some shares are kept for a while, and looked at again.
  void Read() {
    if (held_.size() > 4) {
      const size_t at = random_() % held_.size();
      if (StampOf(held_[at].first.views[0]) != held_[at].second) Fail("a share has changed");
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    auto got = broker_.Acquire({.name = name_ + std::to_string(random_() % kNames)});
    if (!got.ok()) return;
    const uint64_t stamp = StampOf(got->views[0]);
    held_.emplace_back(*std::move(got), stamp);
  }

  Broker& broker_;
  BornHeap& heap_;
  Counts& counts_;
  std::minstd_rand random_;
  std::string name_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::pair<Acquired, uint64_t>> held_;
};

// A child sees the block of its parent as it was, whatever the parent writes, and the other way round.
void Fork(BornHeap& heap, Counts& counts) {
  Block block(heap, kLarge / sizeof(uint64_t), ++counts.stamps);
  int written[2];
  if (::pipe(written) != 0) Fail("no pipe");
  const pid_t child = ::fork();
  if (child < 0) Fail("no process");
  if (child == 0) {
    ::close(written[1]);  // so that the child ends with a parent that is killed
    char byte = 0;
    if (::read(written[0], &byte, 1) != 1 || !block.IsOwn()) ::_exit(1);
    block.Write(0);
    ::_exit(heap.TryAllocate(kSmall).lack == BornHeap::Lack::kChild ? 0 : 2);
  }
  block.Write(++counts.stamps);
  if (::write(written[1], "x", 1) != 1) Fail("a pipe is closed");
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(written[0]);
  ::close(written[1]);
  if (status != 0) Fail("a child saw what its parent wrote, or allocated: status " + std::to_string(status));
  if (!block.IsOwn()) Fail("the parent saw what its child wrote");
  ++counts.children;
}

int Storm(const std::string& address, int seconds, int threads) {
  Broker broker({.address = address, .timeout = std::chrono::seconds(60)});
  const auto heap = BornHeap::Of(broker, {.reserve_bytes = 16 << 20});
  if (const Status opened = heap->Open(); !opened.ok()) Fail(opened.ToString());
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  Counts counts;
  std::vector<std::thread> all;
  for (int number = 0; number < threads; ++number) {
    all.emplace_back([&, number] {
      Worker worker(broker, *heap, counts, number);
      while (Clock::now() < until) worker.Step();
      if (!worker.AllAreOwn()) Fail("a block was written by another thread");
    });
  }
  while (Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    Fork(*heap, counts);
  }
  for (std::thread& each : all) each.join();
  heap->Close();
  std::printf("published %llu born %llu children %llu\n", static_cast<unsigned long long>(counts.published.load()),
              static_cast<unsigned long long>(counts.born.load()),
              static_cast<unsigned long long>(counts.children.load()));
  return 0;
}

}  // namespace
}  // namespace arraybridge

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  return arraybridge::Storm(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
}

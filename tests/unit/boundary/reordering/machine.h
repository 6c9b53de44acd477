// SPDX-License-Identifier: Apache-2.0
// Explores every run of a few threads on a machine that executes out of order, guesses what a load will read and goes
// on, reads its own stores before other processors see them, and is multi-copy atomic: it allows more reorderings than
// x86 and ARMv8. It runs the code of the product: a test that includes reordering/memory before the root finds there
// the shared_word.h that tells this machine of each access. A test checks the claims of a protocol in each final state.
// tests/order checks the protocols in the models of C++ and ARMv8 itself.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/unit/boundary/reordering/recorder.h"

namespace arraybridge::machine {

// REQUIRES: at most 3 threads, each with at most 64 accesses; a thread's accesses depend only on what its loads return,
// and every shared word has the same address in each run. A thread also runs with guesses that do not come true, so it
// notes what it finds and leaves the claims to the judge.
class Machine {
 public:
  using Code = Recorder::Code;

  explicit Machine(std::vector<Code> threads, const Weaker& weaker = {})
      : threads_(std::move(threads)), weaker_(weaker) {}

  // Calls `judge` once for each distinct final state. What the threads noted then is of a run that ends so.
  void Explore(const std::function<void()>& judge) {
    do {  // again while a run has stored a value that earlier runs did not guess
      guessed_more_ = false;
      seen_.clear();
      final_.clear();
      Visit({});
    } while (guessed_more_);
    for (const Now& now : final_) {
      for (size_t thread = 0; thread < threads_.size(); ++thread) {
        Recorder::Run(threads_[thread], thread, now.threads[thread].loaded, weaker_);
      }
      memory_ = &now.memory;
      judge();
    }
  }

  // For the judge: what the word holds in the end.
  uint64_t Final(const auto& word) const {
    const auto found = memory_->find(&word);
    return found == memory_->end() ? uint64_t{word} : found->second;
  }

 private:
  using Memory = std::map<const void*, uint64_t>;  // only places that a thread has stored to
  struct Progress {
    std::vector<uint64_t> loaded;  // what its loads returned: this determines its accesses
    uint64_t done = 0;             // one bit for each access

    friend auto operator<=>(const Progress&, const Progress&) = default;
  };
  struct Now {
    std::array<Progress, 3> threads;
    Memory memory;

    friend auto operator<=>(const Now&, const Now&) = default;
  };

  static bool Is(const Access& access, Kind kind) { return access.kind == kind; }
  static bool Orders(const Access& fence, std::memory_order order) {
    return Is(fence, Kind::kFence) && fence.order == order;
  }
  // Whether the later access of a thread waits for the earlier one.
  static bool Waits(const Access& earlier, const Access& later) {
    if (Orders(earlier, std::memory_order_release)) return !Is(later, Kind::kLoad);
    if (Orders(later, std::memory_order_acquire)) return !Is(earlier, Kind::kStore);
    if (Is(earlier, Kind::kFence) || Is(later, Kind::kFence)) return true;
    if (Is(earlier, Kind::kLoad) && earlier.order != std::memory_order_relaxed) return true;
    if (Is(later, Kind::kStore) && later.order != std::memory_order_relaxed) return true;
    return earlier.place == later.place;
  }
  static bool IsDone(uint64_t done, size_t i) { return (done >> i & 1) != 0; }
  static bool MayHappen(const std::vector<Access>& accesses, uint64_t done, size_t i) {
    for (size_t j = 0; j < i; ++j) {
      if (!IsDone(done, j) && Waits(accesses[j], accesses[i])) return false;
    }
    return true;
  }
  // The store of the same thread that load `i` reads before it happens, as a processor reads its store buffer.
  static const Access* Forwarded(const std::vector<Access>& accesses, uint64_t done, size_t i) {
    const Access* last = nullptr;
    for (size_t j = 0; j < i; ++j) {
      if (IsDone(done, j) || !Waits(accesses[j], accesses[i])) continue;
      if (accesses[j].place != accesses[i].place || accesses[j].order == std::memory_order_acquire) return nullptr;
      last = &accesses[j];
    }
    return last != nullptr && Is(*last, Kind::kStore) ? last : nullptr;
  }

  const Trace& TraceOf(size_t thread, const std::vector<uint64_t>& loaded) {
    const auto [found, is_new] = traces_.try_emplace({thread, loaded});
    if (!is_new) return found->second;
    found->second = Recorder::Run(threads_[thread], thread, loaded, weaker_);
    if (found->second.accesses.size() > 64) throw std::length_error("a thread has more than 64 accesses");
    for (const Access& access : found->second.accesses) {
      if (!Is(access, Kind::kStore)) continue;
      guessed_more_ |= stored_[access.place].insert({thread, access.value}).second;
    }
    return found->second;
  }
  static uint64_t Read(const Memory& memory, const Access& load) {
    const auto found = memory.find(load.place);
    return found == memory.end() ? load.before : found->second;
  }

  void Visit(const Now& now) {
    if (!seen_.insert(now).second) return;
    bool ended = true;
    for (size_t thread = 0; thread < threads_.size(); ++thread) {
      const Trace& trace = TraceOf(thread, now.threads[thread].loaded);
      size_t loads = 0;
      for (size_t i = 0; i < trace.accesses.size(); ++i) {
        const size_t load = Is(trace.accesses[i], Kind::kLoad) ? loads++ : 0;
        if (IsDone(now.threads[thread].done, i)) continue;
        ended = false;
        Step(now, thread, i, trace, load);
      }
      ended = ended && trace.ended;
    }
    if (ended) final_.push_back(now);
  }

  // Goes on with access `i` of a thread; if it is a load, with its number among the loads.
  void Step(const Now& now, size_t thread, size_t i, const Trace& trace, size_t load) {
    const Access& access = trace.accesses[i];
    const uint64_t done = now.threads[thread].done;
    const bool happens = MayHappen(trace.accesses, done, i);
    Now next = now;
    Progress& its = next.threads[thread];
    its.done |= uint64_t{1} << i;
    if (!Is(access, Kind::kLoad)) {
      if (Is(access, Kind::kStore)) next.memory[access.place] = access.value;
      if (happens) Visit(next);
      return;
    }
    const bool answered = load < its.loaded.size();
    const Access* const store = happens ? nullptr : Forwarded(trace.accesses, done, i);
    if (happens || store != nullptr) {
      const uint64_t value = happens ? Read(now.memory, access) : store->value;
      if (!answered) its.loaded.push_back(value);
      if (its.loaded[load] == value) Visit(next);
    }
    if (answered || access.order != std::memory_order_relaxed) return;
    its.done = done;
    for (const auto& [by, guess] : std::set(stored_[access.place])) {
      if (by == thread) continue;  // a load reads its own thread's store at once or never
      its.loaded.resize(load);
      its.loaded.push_back(guess);
      Visit(next);
    }
  }

  const std::vector<Code> threads_;
  const Weaker weaker_;
  std::map<std::pair<size_t, std::vector<uint64_t>>, Trace> traces_;
  std::map<const void*, std::set<std::pair<size_t, uint64_t>>> stored_;  // in any run: by which thread, and what
  bool guessed_more_ = false;
  std::set<Now> seen_;
  std::vector<Now> final_;
  const Memory* memory_ = nullptr;
};

}  // namespace arraybridge::machine

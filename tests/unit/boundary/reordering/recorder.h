// SPDX-License-Identifier: Apache-2.0
// Runs the code of a protocol and notes each access to a shared word. The caller says what the loads return; the code
// stops at the first load for which it does not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace arraybridge::machine {

enum class Kind : uint8_t { kLoad, kStore, kFence };

struct Access {
  Kind kind = Kind::kFence;
  std::memory_order order = std::memory_order_seq_cst;
  const void* place = nullptr;
  uint64_t value = 0;   // of a store
  uint64_t before = 0;  // what the place held before any thread ran
};

// How a thread's code is made weaker. The accesses of the thread that are meant: all to one place, or one fence.
struct Weaker {
  enum How : uint8_t { kNothing, kRelaxed, kLeftOut } how = kNothing;
  size_t thread = 0;
  const void* place = nullptr;  // nullptr: the fence with this number
  size_t fence = 0;             // from 0, in the order in which the thread executes them
};
inline Weaker Relaxed(size_t thread, const void* place) { return {Weaker::kRelaxed, thread, place}; }
inline Weaker WithoutStore(size_t thread, const void* place) { return {Weaker::kLeftOut, thread, place}; }
inline Weaker WithoutFence(size_t thread, size_t fence) { return {Weaker::kLeftOut, thread, nullptr, fence}; }

struct Trace {
  std::vector<Access> accesses;
  bool ended = false;  // false: the last access is a load that has no answer
};

class Recorder {
 public:
  using Code = std::function<void()>;

  // Runs `code` as this thread. `answers`: what its loads return, in order.
  static Trace Run(const Code& code, size_t thread, std::span<const uint64_t> answers, const Weaker& weaker) {
    Recorder recorder(thread, answers, weaker);
    current_ = &recorder;
    try {
      code();
      recorder.trace_.ended = true;
    } catch (const NoAnswer&) {
    }
    current_ = nullptr;
    return std::move(recorder.trace_);
  }

  // What proto/boundary/shared_word.h calls. Outside of Run they access the words themselves.
  template <class Word>
  static Word Load(const Word& word, std::memory_order order) {
    return current_ == nullptr ? word : static_cast<Word>(current_->OnLoad(&word, word, order));
  }
  template <class Word>
  static void Store(Word& word, Word value, std::memory_order order) {
    if (current_ != nullptr) return current_->OnStore(&word, word, value, order);
    word = value;
  }
  static void Fence(std::memory_order order) {
    if (current_ != nullptr) current_->OnFence(order);
  }

 private:
  struct NoAnswer {};

  Recorder(size_t thread, std::span<const uint64_t> answers, const Weaker& weaker)
      : answers_(answers), weaker_(thread == weaker.thread ? weaker : Weaker{}) {}

  std::memory_order OrderOf(const void* place, std::memory_order order) const {
    return weaker_.how == Weaker::kRelaxed && weaker_.place == place ? std::memory_order_relaxed : order;
  }
  uint64_t OnLoad(const void* place, uint64_t before, std::memory_order order) {
    trace_.accesses.push_back({Kind::kLoad, OrderOf(place, order), place, 0, before});
    if (answers_.empty()) throw NoAnswer{};
    const uint64_t answer = answers_.front();
    answers_ = answers_.subspan(1);
    return answer;
  }
  void OnStore(const void* place, uint64_t before, uint64_t value, std::memory_order order) {
    if (weaker_.how == Weaker::kLeftOut && weaker_.place == place) return;
    trace_.accesses.push_back({Kind::kStore, OrderOf(place, order), place, value, before});
  }
  void OnFence(std::memory_order order) {
    if (weaker_.how == Weaker::kLeftOut && weaker_.place == nullptr && weaker_.fence == fences_++) return;
    trace_.accesses.push_back({Kind::kFence, order});
  }

  static inline Recorder* current_ = nullptr;

  std::span<const uint64_t> answers_;
  const Weaker weaker_;
  size_t fences_ = 0;
  Trace trace_;
};

}  // namespace arraybridge::machine

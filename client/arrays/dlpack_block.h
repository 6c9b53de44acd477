// SPDX-License-Identifier: Apache-2.0
// A Block is the memory of one DLPack export: the tensor, its shape and strides, and the owner of the bytes, in one
// allocation. Frameworks call the deleter from any thread, also after the interpreter has gone, and TensorFlow
// sometimes calls it twice. Therefore a released block is not freed but appended to a first-in-first-out list. A late
// second call still finds a state word that says `released`, and returns.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include <arraybridge/view.h>

#include "proto/boundary/mutex.h"

namespace arraybridge {

// A released block is reused only after at least this many later releases.
inline constexpr size_t kReleasedBlocksKept = 64;
// Released blocks above this number are freed, oldest first.
inline constexpr size_t kReleasedBlocksMax = 4096;

template <class Tensor, size_t kRank>
struct Block {
  Tensor tensor{};  // first, because the deleter gets its address
  std::atomic<bool> live{false};
  std::shared_ptr<const void> owner;
  Result<View> (*copy_on_write)(const View&) = nullptr;
  bool constant = false;
  Block* next = nullptr;
  int64_t shape[kRank];
  int64_t strides[kRank];
};

template <class Tensor, size_t kRank>
class BlockPool {
 public:
  using B = Block<Tensor, kRank>;

  // One per process and type. Never destroyed, because deleters run after static destructors.
  static BlockPool& Instance() {
    static BlockPool* const pool = [] {
      auto* made = new BlockPool;
      // A fork while another thread holds the mutex would leave it locked in the child for ever.
      ::pthread_atfork(&LockForFork, &UnlockAfterFork, &UnlockAfterFork);
      return made;
    }();
    return *pool;
  }

  // Returns a live block without an owner.
  B* Take() {
    B* block = Reuse();
    if (block == nullptr) block = new B;
    block->live.store(true, std::memory_order_relaxed);
    return block;
  }

  // Idempotent and thread-safe. The first call drops the owner with no lock held.
  static void Delete(Tensor* tensor) {
    B* block = reinterpret_cast<B*>(tensor);
    if (!block->live.exchange(false, std::memory_order_acq_rel)) return;
    const std::shared_ptr<const void> owner = std::move(block->owner);
    delete Instance().Keep(block);
  }

 private:
  static void LockForFork() AB_THREAD_ANNOTATION(no_thread_safety_analysis) { Instance().mutex_.lock(); }
  static void UnlockAfterFork() AB_THREAD_ANNOTATION(no_thread_safety_analysis) { Instance().mutex_.unlock(); }

  B* Reuse() {
    const MutexLock lock(mutex_);
    if (count_ <= kReleasedBlocksKept) return nullptr;
    return Oldest();
  }

  // Appends the block. Returns the oldest block if the list is full.
  B* Keep(B* block) {
    const MutexLock lock(mutex_);
    block->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = block;
    last_ = block;
    ++count_;
    return count_ > kReleasedBlocksMax ? Oldest() : nullptr;
  }

  B* Oldest() AB_REQUIRES(mutex_) {
    B* block = first_;
    first_ = block->next;
    if (first_ == nullptr) last_ = nullptr;
    --count_;
    return block;
  }

  Mutex mutex_;
  B* first_ AB_GUARDED_BY(mutex_) = nullptr;
  B* last_ AB_GUARDED_BY(mutex_) = nullptr;
  size_t count_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A BornHeap::Impl is a BornHeap in the process that made it. Its lock is held for moments, and over a fork, so that
// what a child inherits is consistent.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arraybridge/born/heap.h>

#include "client/arenas/address_span.h"
#include "client/born/arena.h"
#include "client/born/blocks.h"
#include "client/born_tally/tallies.h"
#include "client/process/fork_guard.h"
#include "client/session/connection.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class BornHeap::Impl : public ForkParticipant, public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::weak_ptr<Connection> connection, const Broker::Options& broker, const Options& options);
  ~Impl() override;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status Open() AB_EXCLUDES(mutex_);
  void Close() AB_EXCLUDES(mutex_);
  Block TryAllocate(uint64_t bytes, Parts parts) AB_EXCLUDES(mutex_);
  bool Free(const std::byte* data) AB_EXCLUDES(mutex_);
  uint64_t SizeOf(const std::byte* data) const AB_EXCLUDES(mutex_);
  bool Fits(const std::byte* data, uint64_t bytes) const AB_EXCLUDES(mutex_);
  Status refusal() const AB_EXCLUDES(mutex_);
  BornTallies& tallies() { return tallies_; }

  void BeforeFork() noexcept override;
  void AfterForkInParent(int child_life) noexcept override;
  void AfterForkInChild() noexcept override;

 private:
  using Instant = std::chrono::steady_clock::time_point;

  std::byte* Take(uint64_t pages, Parts parts) AB_REQUIRES(mutex_);
  std::byte* Carve(uint64_t pages, Parts parts) AB_REQUIRES(mutex_);
  void Want(uint64_t bytes) AB_REQUIRES(mutex_);
  // Fetches an arena with room for a block of `bytes`, unless the broker has just refused one. Waits for the daemon.
  Status Fetch(uint64_t bytes) AB_EXCLUDES(mutex_);
  bool HasRoom(uint64_t bytes) const AB_REQUIRES(mutex_);
  // Carves no more from the arenas that `is_over` names.
  template <class Predicate>
  void Retire(Predicate is_over, BornBlocks::Dead& dead, std::vector<BornArena>& gone) AB_REQUIRES(mutex_);
  // The thread fetches the wanted memory, keeps half a reserve ahead, and gives back what is too much.
  Status StartThread() AB_REQUIRES(mutex_);
  void Run() AB_EXCLUDES(mutex_);
  // Returns false once the heap has been closed for long enough: everything unused is given back.
  bool RunOnce() AB_EXCLUDES(mutex_);
  bool IsOver(const Connection* connection, std::chrono::milliseconds idle) const AB_REQUIRES(mutex_);
  // The bytes of the block for which an arena is to be fetched now, or nothing.
  std::optional<uint64_t> TakeWish() AB_REQUIRES(mutex_);
  void GiveBackSome(Session& session, std::chrono::milliseconds idle) AB_EXCLUDES(mutex_);
  // Held from one fork handler to the next, which the thread-safety analysis cannot follow.
  void Lock() AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void Unlock() AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void SeparateFromChild() noexcept AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void BuryAndUnlock() noexcept AB_THREAD_ANNOTATION(no_thread_safety_analysis);

  const std::weak_ptr<Connection> connection_;
  const std::string namespace_;
  const std::chrono::milliseconds timeout_;
  const uint64_t reserve_bytes_;
  std::atomic<bool> in_child_{false};
  AddressSpan span_;  // of all its arenas; written under `mutex_`

  BornTallies tallies_;
  mutable Mutex mutex_;
  ConditionVariable wanted_changed_;
  std::vector<BornArena> arenas_ AB_GUARDED_BY(mutex_);  // from which it carves, the oldest first
  BornBlocks blocks_ AB_GUARDED_BY(mutex_);
  uint64_t wanted_ AB_GUARDED_BY(mutex_) = 0;  // the largest block that found no room since the last fetch
  uint64_t carved_ AB_GUARDED_BY(mutex_) = 0;  // bytes since the last look ahead
  uint64_t opened_ AB_GUARDED_BY(mutex_) = 0;
  bool running_ AB_GUARDED_BY(mutex_) = false;
  Instant closed_at_ AB_GUARDED_BY(mutex_){};
  Instant allocated_at_ AB_GUARDED_BY(mutex_){};
  Instant refused_until_ AB_GUARDED_BY(mutex_){};
  Status refusal_ AB_GUARDED_BY(mutex_);
  // Blocks and arenas that a fork ended, until the lock is free again.
  BornBlocks::Dead dead_in_fork_ AB_GUARDED_BY(mutex_);
  std::vector<BornArena> gone_in_fork_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

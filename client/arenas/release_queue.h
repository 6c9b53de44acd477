// SPDX-License-Identifier: Apache-2.0
// The ReleaseQueue of a session tells the broker which leases, arenas and mappings this process no longer needs, and
// which fences have ended. A message that a busy broker does not take is kept and sent with the next one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "client/arenas/arena.h"
#include "client/arenas/arena_cache.h"
#include "client/arenas/fences.h"
#include "client/lifeline/lifeline.h"
#include "client/wire/codec.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. REQUIRES: the objects that it refers to outlive it, and the Lifeline ends before it does.
class ReleaseQueue {
 public:
  ReleaseQueue(Lifeline& lifeline, WrittenArenas& written, ArenaCache& read, Fences& fences)
      : lifeline_(lifeline), written_(written), read_(read), fences_(fences) {}

  WrittenArenas& written() { return written_; }
  ArenaCache& read() { return read_; }

  // Sends the release without waiting, or keeps it.
  void Post(codec::Release release) AB_EXCLUDES(mutex_);
  // Sends the release and waits for the broker's answer. On return, the ranges that the broker released are free in
  // this process.
  Status Sync(codec::Release release, Deadline deadline) AB_EXCLUDES(mutex_);
  // Waits, until the deadline, for the unfinished bytes of published shares, and reports the finished ones to the
  // broker.
  Status SyncFences(Deadline deadline) AB_EXCLUDES(mutex_);
  // Whether the maker of this lease's share has ended. False if no broker can tell at present.
  bool MakerEnded(uint64_t lease) AB_EXCLUDES(mutex_);
  // Unmaps the arenas that have not been used since `before`. Returns the message that reports them to the broker.
  codec::Release TakeUnused(std::chrono::steady_clock::time_point before);
  // Keeps `memory` for the life of the session, because a device may still use it and no driver can tell.
  void KeepUndrained(std::shared_ptr<const void> memory) AB_EXCLUDES(mutex_);

  // Counts the leases that exist and are not in a message yet.
  void AddLease() { leases_.fetch_add(1, std::memory_order_relaxed); }
  void EndLease() { leases_.fetch_sub(1, std::memory_order_relaxed); }
  uint64_t leases() const { return leases_.load(std::memory_order_relaxed); }

 private:
  codec::Release WithUnsent(codec::Release release) AB_EXCLUDES(mutex_);
  Status Send(const codec::Release& message);
  Result<wire::ReleaseResponse> Exchange(const std::string& payload, const codec::Release& reported, Deadline deadline);
  void HandleReply(const codec::Release& reported, std::string_view answer);

  Lifeline& lifeline_;
  WrittenArenas& written_;
  ArenaCache& read_;
  Fences& fences_;
  std::atomic<uint64_t> leases_{0};
  Mutex mutex_;
  codec::Release unsent_ AB_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> undrained_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

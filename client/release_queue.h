// The ReleaseQueue of a session tells the broker what this process no longer needs: leases, arenas, mappings, fences
// whose work has ended. A message that a busy broker does not take is kept, and sent with the next one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "client/arena.h"
#include "client/arena_cache.h"
#include "client/codec.h"
#include "client/fences.h"
#include "client/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. REQUIRES: its parts outlive it, and the Lifeline ends before it does.
class ReleaseQueue {
 public:
  ReleaseQueue(Lifeline& lifeline, WrittenArenas& written, ArenaCache& read, Fences& fences)
      : lifeline_(lifeline), written_(written), read_(read), fences_(fences) {}
  ReleaseQueue(const ReleaseQueue&) = delete;
  ReleaseQueue& operator=(const ReleaseQueue&) = delete;

  WrittenArenas& written() { return written_; }
  ArenaCache& read() { return read_; }

  // Sends it without waiting, or keeps it.
  void Post(codec::Release release) AB_EXCLUDES(mutex_);
  // Sends it, and returns when the broker has answered: then the ranges that it let go of are free here.
  Status Sync(codec::Release release, Deadline deadline) AB_EXCLUDES(mutex_);
  // Waits, until the deadline, for the bytes of published shares that are not there yet, and tells the broker of all
  // that have come.
  Status SyncFences(Deadline deadline) AB_EXCLUDES(mutex_);
  // Unmaps the arenas that nothing has used since `before`: the message that tells the broker.
  codec::Release TakeUnused(std::chrono::steady_clock::time_point before);
  // A device may still use `memory`, and no driver can tell: it stays for as long as the session.
  void KeepUndrained(std::shared_ptr<const void> memory) AB_EXCLUDES(mutex_);

  // Leases that exist, and are not in any message yet.
  void AddLease() { leases_.fetch_add(1, std::memory_order_relaxed); }
  void EndLease() { leases_.fetch_sub(1, std::memory_order_relaxed); }
  uint64_t leases() const { return leases_.load(std::memory_order_relaxed); }

 private:
  codec::Release WithUnsent(codec::Release release) AB_EXCLUDES(mutex_);
  Status Send(const codec::Release& message);
  void HandleReply(const codec::Release& told, std::string_view answer);

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

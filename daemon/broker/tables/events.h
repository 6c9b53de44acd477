// SPDX-License-Identifier: Apache-2.0
// Events keeps the unread events of each watcher. Without watchers it costs one relaxed load. Each watcher has a
// bounded queue. A watcher that reads too slowly is closed and learns how many events it lost, so that no request waits
// for a watcher and no watcher takes an incomplete stream for a complete one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/broker/ledger/event.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/config/config.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

class Arena;
struct Session;
struct Share;

// Thread-safe. Its mutex is the innermost: it may be taken with the broker's mutex held, not the reverse.
class Events {
 public:
  using Taken = std::vector<std::shared_ptr<const Event>>;

  explicit Events(const Limits& limits) : limits_(limits) {}

  // Whether there is any watcher. Callers check it before they make an event.
  bool watched() const { return watchers_open_.load(std::memory_order_relaxed) > 0; }
  void Emit(Event event) AB_EXCLUDES(mutex_);
  // Makes an event if there is a watcher. The broker's lock guards the sessions, shares and arenas. `who`: null for the
  // broker itself. `text`: the cause of a withdrawal, else the note.
  void Emit(EventKind kind, const Session* who, const Share& share, std::string_view text) AB_EXCLUDES(mutex_);
  void EmitSession(EventKind kind, const Session& session) AB_EXCLUDES(mutex_);
  void EmitAllocate(const Session& session, const Arena& arena) AB_EXCLUDES(mutex_);
  // Call it before the lease ends. No event if the session has no such lease.
  void EmitRelease(const Session& session, LeaseId lease) AB_EXCLUDES(mutex_);

  // Watches this user's own namespaces and the shared namespaces in `shared`. RESOURCE_EXHAUSTED: limits.watchers, of
  // which one user may have a part.
  Result<WatcherId> Open(SessionId session, uint32_t uid, std::set<std::string> shared, EventFilter filter)
      AB_EXCLUDES(mutex_);
  // Takes the oldest events that fit into `bytes_max` of a message, at least one if there is any. NOT_FOUND,
  // WATCH_NOT_OPEN. RESOURCE_EXHAUSTED, WATCH_CUT: once, after the last event that was not lost; the watch is closed
  // then.
  Result<Taken> Take(SessionId session, WatcherId watcher, size_t bytes_max) AB_EXCLUDES(mutex_);
  // False: the watch is not open.
  bool Close(SessionId session, WatcherId watcher) AB_EXCLUDES(mutex_);
  void CloseAll(SessionId session) AB_EXCLUDES(mutex_);

  // Waits until events have arrived for watchers whose last Take found none, and returns these watchers. Empty: Stop
  // was called.
  std::vector<WatcherId> WaitForNews() AB_EXCLUDES(mutex_);
  void Stop() AB_EXCLUDES(mutex_);

  uint64_t watchers() const { return watchers_open_.load(std::memory_order_relaxed); }
  uint64_t dropped_total() const { return dropped_total_.load(std::memory_order_relaxed); }

 private:
  struct Watcher {
    SessionId session{};
    uint32_t uid = 0;
    std::set<std::string> shared;
    EventFilter filter;
    std::deque<std::shared_ptr<const Event>> queue;
    uint64_t lost = 0;           // not 0: the watcher is cut
    bool found_nothing = false;  // its last Take found nothing, and no event has arrived since

    bool Sees(const Event& event) const;
  };
  using Watchers = std::unordered_map<WatcherId, Watcher>;

  void Deliver(WatcherId id, Watcher& watcher, const std::shared_ptr<const Event>& event) AB_REQUIRES(mutex_);
  void Forget(Watchers::iterator watcher) AB_REQUIRES(mutex_);

  const Limits& limits_;
  std::atomic<uint64_t> watchers_open_{0};
  std::atomic<uint64_t> dropped_total_{0};
  mutable Mutex mutex_;
  ConditionVariable news_came_;
  Watchers watchers_ AB_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, uint64_t> of_uid_ AB_GUARDED_BY(mutex_);
  std::vector<WatcherId> news_ AB_GUARDED_BY(mutex_);
  uint64_t last_watcher_ AB_GUARDED_BY(mutex_) = 0;
  bool stopped_ AB_GUARDED_BY(mutex_) = false;
};

}  // namespace arraybridge::daemon

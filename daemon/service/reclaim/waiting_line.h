// SPDX-License-Identifier: Apache-2.0
// In the WaitingLine the requests of both doors wait: for memory, first come first served within a namespace; for a
// name; or for their turn in a queue. Every wait has a deadline and an answer. A Waiter brings its own retry.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/worker.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// A place in the line; 0 means none, because the request has been answered.
enum class WaiterId : uint64_t {};

// Delivers the answer. It runs after the waiter has left the line, so that an answered waiter no longer counts as
// waiting.
using Deliver = std::function<void()>;

// The obstacle of a waiter for memory: kOwn, if only its own user can release the memory; kShared, if any user can.
enum class Lack : uint8_t { kNothing, kOwn, kShared };

// Populating time grows with the number of bytes. Large requests have a lane of their own with its own thread, so that
// small requests of other namespaces do not wait for them.
enum class Lane : uint8_t { kShort, kLong };
inline Lane Other(Lane lane) { return lane == Lane::kShort ? Lane::kLong : Lane::kShort; }

// After so long a wait, an operator wants to know who waits.
inline constexpr std::chrono::seconds kSlowWait{10};

struct Waiter {
  SessionId session{};
  uint32_t uid = 0;          // the session's user, for limits.requests_per_uid
  uint64_t bytes = 0;        // size of the request, which is kept until it is answered
  Lane lane = Lane::kShort;  // only for a wait for memory
  // nullopt: the waiter is tried once and then expires.
  std::optional<Clock::time_point> deadline;
  // Tries the request; an empty result means that it must keep waiting. `first`: no waiter of its namespace is in front
  // of it; otherwise the retry may take only what no other waiter could use. Never called twice at a time. The result
  // is run even if the waiter was cancelled meanwhile.
  std::function<Deliver(bool first)> retry;
  // For a waiter for several names: the missing name of its last try. The waiter is tried again when that name is
  // published, and for no other name. Empty: it is tried for each of its names.
  std::function<std::string_view()> misses;
  size_t names = 1;  // number of names that a try looks up
  // Called after a try with `first` that did not succeed. Empty: the waiter lacks shared memory.
  std::function<Lack()> lack;
  // Called once, with no lock held, if it still waits after `slow_after`. May be empty.
  std::function<void()> slow;
  std::chrono::milliseconds slow_after = kSlowWait;
  // Answers that the wait has timed out. Called at most once, and never in addition to an answer.
  std::function<void()> expire;
};

// Thread-safe. Calls retry and expire with no lock held.
class WaitingLine {
 public:
  explicit WaitingLine(const Limits& limits);  // which must outlive this object
  ~WaitingLine();
  // Its thread for deadlines ends: no retry or expiry runs on it any more. Not thread-safe.
  void Stop() { timers_.Stop(); }

  // Enqueues the waiter behind all others of (uid, ns); ServeMemory tries it. RESOURCE_EXHAUSTED:
  // queued_requests_per_session, queued_requests_per_uid or queued_bytes_per_uid.
  Result<WaiterId> WaitForMemory(uint32_t uid, std::string_view ns, Waiter waiter);
  // Enqueues the waiter first and then tries it once, on this thread, so that a name published in between is not
  // missed. 0: it has been answered. `owner`: the owner of the namespace.
  Result<WaiterId> WaitForNames(uint32_t owner, std::string_view ns, std::span<const std::string_view> names,
                                Waiter waiter);

  // Call it when memory may have become free: tries the waiters of this lane, in order within a namespace and in turn
  // among users. New waiters take part, so that a long queue delays only its own user. A waiter does not overtake one
  // of the other lane that has not been tried or is being tried. May populate memory: call it on a worker, one thread
  // per lane at a time. True: the other lane must be served too, because a waiter of one lane was in the way of the
  // other.
  bool ServeMemory(Lane lane = Lane::kShort);
  // Tries the waiters for this name: the first few on this thread, the others soon, in batches.
  void NamePublished(uint32_t owner, std::string_view ns, std::string_view name);
  // Enqueues the waiter behind all others of this queue, then tries all of them in order, on this thread. 0: it has
  // been answered.
  Result<WaiterId> WaitInQueue(uint64_t queue, Waiter waiter);
  // Tries the waiters in order, on this thread, until one must keep waiting. True: at least one was answered.
  bool ServeQueue(uint64_t queue);
  bool waits_in(uint64_t queue) const;
  // Cheap. False: no queue has waiters.
  bool waits_in_queues() const { return queue_waiters_.load() > 0; }
  // Cheap. False: no waiter waits for a name.
  bool waits_for_names() const { return name_waiters_.load() > 0; }

  // The waiter gets no answer, unless one is being delivered right now.
  void Cancel(WaiterId waiter);
  void DropSession(SessionId session);
  // All waiters expire now, because the daemon drains.
  void ExpireAll();

  // True if a waiter lacks memory that this user could release.
  bool wanted(uint32_t uid) const;
  // True if a waiter waits for memory, whether or not it has been tried.
  bool waits_for_memory() const { return memory_waiters_.load() > 0; }
  uint64_t waiting() const;

 private:
  struct Entry;
  using EntryPointer = std::shared_ptr<Entry>;
  using MemoryKey = std::pair<uint32_t, std::string>;

  // The number and size of one user's waiting requests.
  struct Queued {
    uint64_t requests = 0;
    uint64_t bytes = 0;
  };
  // `key_bytes`: size of the names under which the entry is found.
  Result<EntryPointer> Insert(Waiter waiter, uint64_t key_bytes = 0) AB_REQUIRES(mutex_);
  Status CheckQueued(uint32_t uid, uint64_t bytes) const AB_REQUIRES(mutex_);
  void Remove(Entry& entry) AB_REQUIRES(mutex_);
  void Mark(Entry& entry, Lack lack) AB_REQUIRES(mutex_);
  void Arm(Clock::time_point deadline) AB_REQUIRES(mutex_);
  // False: the entry keeps waiting.
  bool Try(const EntryPointer& entry, bool first) AB_EXCLUDES(mutex_);
  void Expire(const EntryPointer& entry) AB_EXCLUDES(mutex_);
  void ExpireDue() AB_EXCLUDES(mutex_);
  void AddDeadline(Clock::time_point deadline, uint64_t id) AB_REQUIRES(mutex_);
  // The progress in one namespace during a call of ServeMemory.
  struct Turn {
    uint64_t last = 0;  // id of the last entry that was tried
    uint64_t tries = 0;
    bool first = true;  // no earlier entry keeps waiting
  };
  using Turns = std::map<MemoryKey, Turn>;
  std::vector<uint32_t> UsersWaiting() const AB_EXCLUDES(mutex_);
  // False: no waiter of this user is left to be tried.
  bool ServeOne(uint32_t uid, Lane lane, Turns* turns) AB_EXCLUDES(mutex_);
  EntryPointer NextInTurn(const std::set<uint64_t>& queue, Lane lane, Turn* turn) AB_REQUIRES(mutex_);
  // The waiters for one name.
  struct NameQueue {
    std::set<uint64_t> ids;  // in order of arrival
    bool is_walked = false;  // the deadlines' thread tries them in batches
    bool again = false;      // the name was published again since
  };
  using Batch = std::vector<EntryPointer>;
  // Returns the next batch after `after`, and sets `after` to its last entry.
  Batch NextOf(const NameQueue& queue, uint64_t* after) AB_REQUIRES(mutex_);
  void TryNext(const std::string& name_key, uint64_t after) AB_EXCLUDES(mutex_);
  void Enlist(Entry& entry, std::string name_key) AB_REQUIRES(mutex_);
  void Delist(Entry& entry) AB_REQUIRES(mutex_);
  // Enlists the entry for this name only. False: it was already.
  bool Move(Entry& entry, std::string_view name) AB_REQUIRES(mutex_);

  const Limits& limits_;
  mutable Mutex mutex_;
  uint64_t last_id_ AB_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, EntryPointer> entries_ AB_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::set<uint64_t>> of_session_ AB_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, Queued> of_uid_ AB_GUARDED_BY(mutex_);
  // In order of arrival: ids only grow.
  std::map<MemoryKey, std::set<uint64_t>> for_memory_ AB_GUARDED_BY(mutex_);
  // By lane: it found a waiter of the other lane in its way, or a waiter in front of it has been answered.
  std::array<bool, 2> go_on_ AB_GUARDED_BY(mutex_){};
  std::unordered_map<std::string, NameQueue> for_name_ AB_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::set<uint64_t>> in_queue_ AB_GUARDED_BY(mutex_);  // in order of arrival
  // Of waiters, and the times at which those that have `slow` become slow.
  std::set<std::pair<Clock::time_point, uint64_t>> deadlines_ AB_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> armed_ AB_GUARDED_BY(mutex_);
  std::map<uint32_t, uint64_t> refused_of_
      AB_GUARDED_BY(mutex_);              // by user: waiters that lack memory of their own user
  std::atomic<uint64_t> refused_own_{0};  // sum over all users
  std::atomic<uint64_t> refused_{0};      // waiters that lack shared memory
  std::atomic<uint64_t> name_waiters_{0};
  std::atomic<uint64_t> memory_waiters_{0};
  std::atomic<uint64_t> queue_waiters_{0};
  // Has its own thread, so that a slow allocation does not delay deadlines. Last: it uses all of the above.
  Worker timers_;
};

}  // namespace arraybridge::daemon

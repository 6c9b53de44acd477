// The WaitingLine is where both doors' callers wait for what is not there yet: memory, first come first served inside
// a namespace, a name, or their turn in a queue. Every wait has a deadline and an answer. It knows no verb: a Waiter
// brings its own retry.
#pragma once

#include <array>
#include <atomic>
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

namespace arraybridge {

// A place in the line; 0: there is none (answered already).
enum class WaiterId : uint64_t {};

// Gives the answer. It runs once the waiter has left the line: whoever is answered no longer counts as waiting.
using Deliver = std::function<void()>;

// What is in the way of one that waits for memory: something that its user alone can give back, or anybody.
enum class Lack : uint8_t { kNothing, kOwn, kShared };

// Populating takes as long as there are bytes: who asks for many is tried by another thread than who asks for few, so
// that nobody of another namespace waits for it.
enum class Lane : uint8_t { kShort, kLong };
inline Lane Other(Lane lane) { return lane == Lane::kShort ? Lane::kLong : Lane::kShort; }

struct Waiter {
  SessionId session{};
  uint32_t uid = 0;          // whose session that is: limits.queued_requests_per_uid, queued_bytes_per_uid
  uint64_t bytes = 0;        // of the request, which is kept until it is answered
  Lane lane = Lane::kShort;  // of one that waits for memory
  // None: it is tried once and then expires.
  std::optional<Clock::time_point> deadline;
  // Empty: it waits on. `first`: nobody of its namespace stands before it; who is not may take only what nobody else
  // could. Never called twice at a time. What it returns is run, even if the waiter was cancelled meanwhile.
  std::function<Deliver(bool first)> retry;
  // Of one that waits for several names: the one that it lacked when it was tried last. It is tried again when that
  // name comes, and for no other. Empty: for each of the names that it waits for.
  std::function<std::string_view()> misses;
  size_t names = 1;  // that a try looks for
  // Asked after it was tried as the first and waits on. Empty: what it lacks is shared.
  std::function<Lack()> lack;
  // Answers that it waited in vain. Called at most once, and never together with an answer.
  std::function<void()> expire;
};

// Thread-safe. Calls retry and expire with no lock held.
class WaitingLine {
 public:
  explicit WaitingLine(const Limits& limits);  // which outlive it
  ~WaitingLine();
  WaitingLine(const WaitingLine&) = delete;
  WaitingLine& operator=(const WaitingLine&) = delete;
  // Its thread for deadlines ends: no retry or expiry runs on it any more. Not thread-safe.
  void Stop() { timers_.Stop(); }

  // Stands behind everybody of (uid, ns); ServeMemory tries it. RESOURCE_EXHAUSTED: queued_requests_per_session,
  // queued_requests_per_uid or queued_bytes_per_uid.
  Result<WaiterId> WaitForMemory(uint32_t uid, std::string_view ns, Waiter waiter);
  // Inserted first, tried once then, on this thread: a name that came in between is not missed. 0: answered.
  // `owner`: of the namespace.
  Result<WaiterId> WaitForNames(uint32_t owner, std::string_view ns, std::span<const std::string_view> names,
                                Waiter waiter);

  // Memory may have become free: tries who waits in this lane, inside a namespace in order. One of each user in turn,
  // those who came meanwhile included, so that a long queue is a wait for its own user alone. Nobody overtakes one of
  // the other lane that was not tried yet or is being tried. May populate: on a worker, one thread a lane at a time.
  // True: the other lane is to be served, too; somebody there was in the way of this one, or the other way round.
  bool ServeMemory(Lane lane = Lane::kShort);
  // Tries those that wait for it: the first few on this thread, the others soon, a few at a time.
  void NamePublished(uint32_t owner, std::string_view ns, std::string_view name);
  // Stands behind everybody of this queue, and all are tried in order, on this thread. 0: answered.
  Result<WaiterId> WaitInQueue(uint64_t queue, Waiter waiter);
  // Tries them in order until one waits on, on this thread. True: at least one was answered.
  bool ServeQueue(uint64_t queue);
  bool waits_in(uint64_t queue) const;
  // Cheap: without it nobody need ask about a queue.
  bool waits_in_queues() const { return queue_waiters_.load() > 0; }
  // Cheap: without it nobody need find out whose name was published.
  bool waits_for_names() const { return name_waiters_.load() > 0; }

  // No answer any more, unless one is being given right now.
  void Cancel(WaiterId waiter);
  void DropSession(SessionId session);
  // Everybody expires now: the daemon drains.
  void ExpireAll();

  // Somebody was refused memory that this user could give back, and waits.
  bool wanted(uint32_t uid) const;
  // Somebody waits for memory, refused or not tried yet.
  bool waits_for_memory() const { return memory_waiters_.load() > 0; }
  uint64_t waiting() const;

 private:
  struct Entry;
  using EntryPointer = std::shared_ptr<Entry>;
  using MemoryKey = std::pair<uint32_t, std::string>;

  // What the requests of one user that wait have.
  struct Queued {
    uint64_t requests = 0;
    uint64_t bytes = 0;
  };
  // `key_bytes`: of the names under which it is found.
  Result<EntryPointer> Insert(Waiter waiter, uint64_t key_bytes = 0) AB_REQUIRES(mutex_);
  Status CheckQueued(uint32_t uid, uint64_t bytes) const AB_REQUIRES(mutex_);
  void Remove(Entry& entry) AB_REQUIRES(mutex_);
  void Mark(Entry& entry, Lack lack) AB_REQUIRES(mutex_);
  void Arm(Clock::time_point deadline) AB_REQUIRES(mutex_);
  // False: it waits on.
  bool Try(const EntryPointer& entry, bool first) AB_EXCLUDES(mutex_);
  void Expire(const EntryPointer& entry) AB_EXCLUDES(mutex_);
  void ExpireDue() AB_EXCLUDES(mutex_);
  // How far one namespace has come while ServeMemory goes round.
  struct Turn {
    uint64_t last = 0;  // id
    uint64_t tries = 0;
    bool first = true;  // nobody before it waits on
  };
  using Turns = std::map<MemoryKey, Turn>;
  std::vector<uint32_t> UsersWaiting() const AB_EXCLUDES(mutex_);
  // False: nobody of this user is left to be tried.
  bool ServeOne(uint32_t uid, Lane lane, Turns* turns) AB_EXCLUDES(mutex_);
  EntryPointer NextInTurn(const std::set<uint64_t>& queue, Lane lane, Turn* turn) AB_REQUIRES(mutex_);
  // Those that wait for one name.
  struct NameQueue {
    std::set<uint64_t> ids;  // in the order they came
    bool is_walked = false;  // the deadlines' thread tries them, one batch after another
    bool again = false;      // the name came once more since
  };
  using Batch = std::vector<EntryPointer>;
  // The next few behind `after`, which is the last of them then.
  Batch NextOf(const NameQueue& queue, uint64_t* after) AB_REQUIRES(mutex_);
  void TryNext(const std::string& name_key, uint64_t after) AB_EXCLUDES(mutex_);
  void Enlist(Entry& entry, std::string name_key) AB_REQUIRES(mutex_);
  void Delist(Entry& entry) AB_REQUIRES(mutex_);
  // False: it was enlisted there already.
  bool Move(Entry& entry, std::string_view name) AB_REQUIRES(mutex_);

  const Limits& limits_;
  mutable Mutex mutex_;
  uint64_t last_id_ AB_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, EntryPointer> entries_ AB_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::set<uint64_t>> of_session_ AB_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, Queued> of_uid_ AB_GUARDED_BY(mutex_);
  // In the order they came: ids only grow.
  std::map<MemoryKey, std::set<uint64_t>> for_memory_ AB_GUARDED_BY(mutex_);
  // By lane: it found one of the other lane in its way, or one that stood before it has been answered.
  std::array<bool, 2> go_on_ AB_GUARDED_BY(mutex_){};
  std::unordered_map<std::string, NameQueue> for_name_ AB_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::set<uint64_t>> in_queue_ AB_GUARDED_BY(mutex_);  // in the order they came
  std::set<std::pair<Clock::time_point, uint64_t>> deadlines_ AB_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> armed_ AB_GUARDED_BY(mutex_);
  std::map<uint32_t, uint64_t> refused_of_ AB_GUARDED_BY(mutex_);  // of each user those that lack its own
  std::atomic<uint64_t> refused_own_{0};                           // of all users
  std::atomic<uint64_t> refused_{0};                               // those that lack what is shared
  std::atomic<uint64_t> name_waiters_{0};
  std::atomic<uint64_t> memory_waiters_{0};
  std::atomic<uint64_t> queue_waiters_{0};
  // A thread of its own: a slow allocation must not delay a deadline. Last: it uses all of the above.
  Worker timers_;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reclaim/waiting_line.h"

#include <algorithm>
#include <utility>

namespace arraybridge::daemon {

struct WaitingLine::Entry {
  uint64_t id = 0;
  Waiter waiter;
  std::optional<MemoryKey> memory;           // set if it waits for memory
  std::optional<uint64_t> queue;             // set if it waits in this queue; otherwise it waits for names
  std::string names_of;                      // the common prefix of its names' keys
  std::vector<std::string> name_keys;        // its keys in for_name_
  std::optional<Clock::time_point> slow_at;  // set until `slow` is called
  bool busy = false;                         // its retry is running
  bool again = false;                        // its retry must run again
  bool overdue = false;                      // its deadline passed while its retry was running
  bool tried = false;                        // has been tried at least once
  bool gone = false;                         // answered, cancelled or expired, and no longer in the tables
  Lack lack = Lack::kNothing;                // counted in refused_, or refused_own_ and refused_of_
};

namespace {

// The number of retries that a Publish makes before it is answered, and the number of names that these retries, except
// the first, may look up.
constexpr size_t kTriesAtOnce = 8;
constexpr size_t kNamesAtOnce = 64;
// The pause after such a batch of retries on the deadlines' thread, as a multiple of the batch's duration.
constexpr int kPausePart = 3;
// A missing name can be published while its waiter is being enlisted: it is then tried again at once, so many times.
constexpr int kMovesAtOnce = 4;

// The memory of a waiting request in addition to its own bytes: its entry, its closures and its places in the tables;
// for each name, two copies and two nodes.
constexpr uint64_t kEntryBytes = 1024;
constexpr uint64_t kNameBytes = 192;

std::string NamesOf(uint32_t owner, std::string_view ns) {
  std::string begin = std::to_string(owner);
  begin += '\0';
  begin += ns;
  begin += '\0';
  return begin;
}

}  // namespace

WaitingLine::WaitingLine(const Limits& limits) : limits_(limits), timers_("ab-deadlines") {}

WaitingLine::~WaitingLine() = default;

Status WaitingLine::CheckQueued(uint32_t uid, uint64_t bytes) const {
  const auto found = of_uid_.find(uid);
  const Queued queued = found == of_uid_.end() ? Queued{} : found->second;
  if (queued.requests >= limits_.requests_per_uid) {
    return ResourceExhausted("user ", uid, " has ", queued.requests, " requests waiting (limits.requests_per_uid ",
                             limits_.requests_per_uid, "): wait for fewer at a time")
        .Because("QUEUED_REQUESTS");
  }
  if (queued.bytes + bytes <= limits_.queued_bytes_per_uid()) return Ok();
  return ResourceExhausted("the waiting requests of user ", uid, " use ", queued.bytes, " bytes, this one needs ",
                           bytes, " more (4 KiB for each of limits.requests_per_uid ", limits_.requests_per_uid,
                           "): wait for fewer names at a time")
      .Because("QUEUED_BYTES");
}

Result<WaitingLine::EntryPointer> WaitingLine::Insert(Waiter waiter, uint64_t key_bytes) {
  waiter.bytes += kEntryBytes + key_bytes;
  AB_RETURN_IF_ERROR(CheckQueued(waiter.uid, waiter.bytes));
  auto& mine = of_session_[Number(waiter.session)];
  if (mine.size() >= limits_.requests_per_session) {
    return ResourceExhausted("the session has ", mine.size(), " requests waiting, the most is ",
                             limits_.requests_per_session, ": wait for fewer at a time")
        .Because("QUEUED_REQUESTS");
  }
  Queued& queued = of_uid_[waiter.uid];
  ++queued.requests;
  queued.bytes += waiter.bytes;
  auto entry = std::make_shared<Entry>();
  entry->id = ++last_id_;
  entry->waiter = std::move(waiter);
  mine.insert(entry->id);
  entries_.emplace(entry->id, entry);
  if (entry->waiter.deadline) AddDeadline(*entry->waiter.deadline, entry->id);
  if (entry->waiter.slow) {
    entry->slow_at = Clock::now() + entry->waiter.slow_after;
    AddDeadline(*entry->slow_at, entry->id);
  }
  return entry;
}

void WaitingLine::Remove(Entry& entry) {
  if (entry.gone) return;
  entry.gone = true;
  entries_.erase(entry.id);
  const auto queued = of_uid_.find(entry.waiter.uid);
  queued->second.bytes -= entry.waiter.bytes;
  if (--queued->second.requests == 0) of_uid_.erase(queued);
  const auto session = of_session_.find(Number(entry.waiter.session));
  session->second.erase(entry.id);
  if (session->second.empty()) of_session_.erase(session);
  if (entry.waiter.deadline) deadlines_.erase({*entry.waiter.deadline, entry.id});
  if (entry.slow_at) deadlines_.erase({*entry.slow_at, entry.id});
  Mark(entry, Lack::kNothing);
  if (entry.memory) {
    memory_waiters_.fetch_sub(1);
    const auto queue = for_memory_.find(*entry.memory);
    queue->second.erase(entry.id);
    if (queue->second.empty()) for_memory_.erase(queue);
    return;
  }
  if (entry.queue) {
    queue_waiters_.fetch_sub(1);
    const auto queue = in_queue_.find(*entry.queue);
    queue->second.erase(entry.id);
    if (queue->second.empty()) in_queue_.erase(queue);
    return;
  }
  name_waiters_.fetch_sub(1);
  Delist(entry);
}

void WaitingLine::Enlist(Entry& entry, std::string name_key) {
  for_name_[name_key].ids.insert(entry.id);
  entry.name_keys.push_back(std::move(name_key));
}

void WaitingLine::Delist(Entry& entry) {
  for (const std::string& key : std::exchange(entry.name_keys, {})) {
    const auto queue = for_name_.find(key);
    if (queue == for_name_.end()) continue;  // the request has the same name twice
    queue->second.ids.erase(entry.id);
    if (queue->second.ids.empty()) for_name_.erase(queue);
  }
}

bool WaitingLine::Move(Entry& entry, std::string_view name) {
  std::string key = entry.names_of + std::string(name);
  if (entry.name_keys.size() == 1 && entry.name_keys.front() == key) return false;
  Delist(entry);
  Enlist(entry, std::move(key));
  return true;
}

Result<WaiterId> WaitingLine::WaitForMemory(uint32_t uid, std::string_view ns, Waiter waiter) {
  MutexLock lock(mutex_);
  AB_ASSIGN_OR_RETURN(auto entry, Insert(std::move(waiter)));
  entry->memory = MemoryKey{uid, std::string(ns)};
  for_memory_[*entry->memory].insert(entry->id);
  memory_waiters_.fetch_add(1);
  return WaiterId{entry->id};
}

Result<WaiterId> WaitingLine::WaitForNames(uint32_t owner, std::string_view ns, std::span<const std::string_view> names,
                                           Waiter waiter) {
  EntryPointer entry;
  {
    MutexLock lock(mutex_);
    // The set of missing names changes, and they may be longer than these.
    const uint64_t key_bytes = names.size() * (kNameBytes + 2 * (ns.size() + limits_.name_bytes_max));
    AB_ASSIGN_OR_RETURN(entry, Insert(std::move(waiter), key_bytes));
    name_waiters_.fetch_add(1);
    entry->names_of = NamesOf(owner, ns);
    for (const std::string_view name : names) Enlist(*entry, entry->names_of + std::string(name));
  }
  return Try(entry, true) ? WaiterId{} : WaiterId{entry->id};
}

Result<WaiterId> WaitingLine::WaitInQueue(uint64_t queue, Waiter waiter) {
  EntryPointer entry;
  {
    MutexLock lock(mutex_);
    AB_ASSIGN_OR_RETURN(entry, Insert(std::move(waiter)));
    queue_waiters_.fetch_add(1);
    entry->queue = queue;
    in_queue_[queue].insert(entry->id);
  }
  ServeQueue(queue);
  MutexLock lock(mutex_);
  return entry->gone ? WaiterId{} : WaiterId{entry->id};
}

// If another thread is trying the first waiter, this call makes that thread try it again, so no change is missed. No
// waiter is tried before the one in front of it has been answered.
bool WaitingLine::ServeQueue(uint64_t queue) {
  if (!waits_in_queues()) return false;
  for (bool answered = false;; answered = true) {
    EntryPointer first;
    {
      MutexLock lock(mutex_);
      const auto found = in_queue_.find(queue);
      if (found == in_queue_.end()) return answered;
      first = entries_.at(*found->second.begin());
    }
    if (!Try(first, true)) return answered;
  }
}

bool WaitingLine::waits_in(uint64_t queue) const {
  if (!waits_in_queues()) return false;
  MutexLock lock(mutex_);
  return in_queue_.contains(queue);
}

// Records what the entry lacks. From its first refusal on, memory is wanted.
void WaitingLine::Mark(Entry& entry, Lack lack) {
  const Lack before = std::exchange(entry.lack, lack);
  if (before == lack) return;
  if (before == Lack::kShared) refused_.fetch_sub(1, std::memory_order_relaxed);
  if (lack == Lack::kShared) refused_.fetch_add(1, std::memory_order_relaxed);
  if (before == Lack::kOwn) {
    refused_own_.fetch_sub(1, std::memory_order_relaxed);
    const auto own = refused_of_.find(entry.memory->first);
    if (--own->second == 0) refused_of_.erase(own);
  }
  if (lack == Lack::kOwn) {
    refused_own_.fetch_add(1, std::memory_order_relaxed);
    ++refused_of_[entry.memory->first];
  }
}

// One thread at a time runs an entry's retry; a second caller makes it run again.
bool WaitingLine::Try(const EntryPointer& entry, bool first) {
  {
    MutexLock lock(mutex_);
    if (entry->gone) return true;
    if (entry->busy) {
      entry->again = true;
      return false;
    }
    entry->busy = true;
  }
  for (int moves = 0;;) {
    const Deliver deliver = entry->waiter.retry(first);
    const std::string_view missing = deliver || !entry->waiter.misses ? std::string_view() : entry->waiter.misses();
    const Lack lack = deliver || !entry->waiter.lack ? Lack::kShared : entry->waiter.lack();
    bool waits_on = false;
    {
      MutexLock lock(mutex_);
      if (deliver) Remove(*entry);
      if (!entry->gone && std::exchange(entry->again, false)) continue;
      // The missing name may have been published before the entry was enlisted for it.
      if (!entry->gone && !missing.empty() && Move(*entry, missing)) {
        if (++moves <= kMovesAtOnce) continue;
        timers_.Post([this, entry] { Try(entry, true); });
      }
      entry->busy = false;
      entry->tried = true;
      waits_on = !entry->gone;
      if (waits_on && first && entry->memory) Mark(*entry, lack);
    }
    if (deliver) deliver();
    if (!waits_on) return true;
    break;
  }
  Expire(entry);
  MutexLock lock(mutex_);
  return entry->gone;
}

// Removes the entry if its deadline has passed, and answers that it has expired.
void WaitingLine::Expire(const EntryPointer& entry) {
  {
    MutexLock lock(mutex_);
    if (!entry->overdue || entry->busy || entry->gone) return;
    Remove(*entry);
  }
  entry->waiter.expire();
}

bool WaitingLine::ServeMemory(Lane lane) {
  Turns turns;
  for (bool more = true; more;) {
    more = false;
    for (const uint32_t uid : UsersWaiting()) more |= ServeOne(uid, lane, &turns);
  }
  MutexLock lock(mutex_);
  return std::exchange(go_on_[static_cast<size_t>(Other(lane))], false) && !for_memory_.empty();
}

std::vector<uint32_t> WaitingLine::UsersWaiting() const {
  std::vector<uint32_t> users;
  MutexLock lock(mutex_);
  for (const auto& [key, queue] : for_memory_) {
    if (users.empty() || users.back() != key.first) users.push_back(key.first);
  }
  return users;
}

// Null if no waiter of this lane can be tried now.
WaitingLine::EntryPointer WaitingLine::NextInTurn(const std::set<uint64_t>& queue, Lane lane, Turn* turn) {
  for (auto next = queue.upper_bound(turn->last); next != queue.end(); ++next) {
    const EntryPointer& entry = entries_.at(*next);
    if (entry->waiter.lane == lane) return entry;
    if (entry->busy || !entry->tried) {
      go_on_[static_cast<size_t>(lane)] = true;  // after the other lane, which must try this entry, is done
      return nullptr;
    }
    turn->last = *next;
    turn->first = false;
  }
  return nullptr;
}

// Tries the waiters of a namespace in order. After the first one that must keep waiting, later ones may use only what
// is theirs already. Among several namespaces, chooses the one that was served least.
bool WaitingLine::ServeOne(uint32_t uid, Lane lane, Turns* turns) {
  Turn* turn = nullptr;
  EntryPointer entry;
  {
    MutexLock lock(mutex_);
    for (auto at = for_memory_.lower_bound({uid, {}}); at != for_memory_.end() && at->first.first == uid; ++at) {
      Turn& its = (*turns)[at->first];
      if (turn != nullptr && turn->tries <= its.tries) continue;
      EntryPointer next = NextInTurn(at->second, lane, &its);
      if (next == nullptr) continue;
      turn = &its;
      entry = std::move(next);
    }
    if (turn == nullptr) return false;
    turn->last = entry->id;
    ++turn->tries;
    if (!entry->waiter.deadline) entry->overdue = true;  // expires after this try
  }
  if (!Try(entry, turn->first)) {
    turn->first = false;
    return true;
  }
  MutexLock lock(mutex_);
  go_on_[static_cast<size_t>(Other(lane))] = true;
  return true;
}

WaitingLine::Batch WaitingLine::NextOf(const NameQueue& queue, uint64_t* after) {
  Batch batch;
  size_t names = 0;
  for (auto next = queue.ids.upper_bound(*after); next != queue.ids.end() && batch.size() < kTriesAtOnce; ++next) {
    const EntryPointer& entry = entries_.at(*next);
    names += entry->waiter.names;
    if (!batch.empty() && names > kNamesAtOnce) break;
    batch.push_back(entry);
    *after = *next;
  }
  return batch;
}

void WaitingLine::NamePublished(uint32_t owner, std::string_view ns, std::string_view name) {
  if (!waits_for_names()) return;
  std::string key = NamesOf(owner, ns) + std::string(name);
  Batch now;
  uint64_t last = 0;
  bool others = false;
  {
    MutexLock lock(mutex_);
    const auto found = for_name_.find(key);
    if (found == for_name_.end()) return;
    NameQueue& queue = found->second;
    now = NextOf(queue, &last);
    if (queue.ids.upper_bound(last) != queue.ids.end()) {
      others = !std::exchange(queue.is_walked, true);
      queue.again = !others;
    }
  }
  for (const EntryPointer& entry : now) Try(entry, true);
  if (others) timers_.Post([this, key = std::move(key), last] { TryNext(key, last); });
}

// Tries one batch and plans the next one: due deadlines, and threads that need the locks of a try, come between.
void WaitingLine::TryNext(const std::string& name_key, uint64_t after) {
  Batch batch;
  {
    MutexLock lock(mutex_);
    const auto found = for_name_.find(name_key);
    if (found == for_name_.end()) return;
    NameQueue& queue = found->second;
    batch = NextOf(queue, &after);
    if (batch.empty() && std::exchange(queue.again, false)) {
      after = 0;
      batch = NextOf(queue, &after);
    }
    if (batch.empty()) {
      queue.is_walked = false;
      return;
    }
  }
  const auto begun = Clock::now();
  for (const EntryPointer& entry : batch) Try(entry, true);
  const auto now = Clock::now();
  timers_.PostAt(now + kPausePart * (now - begun), [this, name_key, after] { TryNext(name_key, after); });
}

bool WaitingLine::wanted(uint32_t uid) const {
  if (refused_.load(std::memory_order_relaxed) > 0) return true;
  if (refused_own_.load(std::memory_order_relaxed) == 0) return false;
  MutexLock lock(mutex_);
  return refused_of_.contains(uid);
}

void WaitingLine::Cancel(WaiterId waiter) {
  EntryPointer entry;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  const auto found = entries_.find(static_cast<uint64_t>(waiter));
  if (found == entries_.end()) return;
  entry = found->second;
  Remove(*entry);
}

void WaitingLine::DropSession(SessionId session) {
  std::vector<EntryPointer> dropped;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  const auto found = of_session_.find(Number(session));
  if (found == of_session_.end()) return;
  for (const uint64_t id : found->second) dropped.push_back(entries_.at(id));
  for (const EntryPointer& entry : dropped) Remove(*entry);
}

void WaitingLine::ExpireAll() {
  std::vector<EntryPointer> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) all.push_back(entry);
    for (const EntryPointer& entry : all) entry->overdue = true;
  }
  for (const EntryPointer& entry : all) Expire(entry);
}

uint64_t WaitingLine::waiting() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

// Uses one timer for the earliest deadline instead of one for each request.
void WaitingLine::Arm(Clock::time_point deadline) {
  if (armed_ && *armed_ <= deadline) return;
  armed_ = deadline;
  timers_.PostAt(deadline, [this] { ExpireDue(); });
}

void WaitingLine::AddDeadline(Clock::time_point deadline, uint64_t id) {
  deadlines_.emplace(deadline, id);
  Arm(deadline);
}

void WaitingLine::ExpireDue() {
  std::vector<EntryPointer> due;
  std::vector<EntryPointer> slow;
  {
    MutexLock lock(mutex_);
    const auto now = Clock::now();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const auto [deadline, id] = *deadlines_.begin();
      deadlines_.erase(deadlines_.begin());
      const EntryPointer& entry = entries_.at(id);
      if (deadline == entry->slow_at) {
        entry->slow_at.reset();
        slow.push_back(entry);
      }
      if (deadline != entry->waiter.deadline) continue;
      entry->overdue = true;
      due.push_back(entry);
    }
    armed_.reset();
    if (!deadlines_.empty()) Arm(deadlines_.begin()->first);
  }
  for (const EntryPointer& entry : slow) entry->waiter.slow();
  for (const EntryPointer& entry : due) Expire(entry);
}

}  // namespace arraybridge::daemon

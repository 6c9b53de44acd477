#include "daemon/service/waiting_line.h"

namespace arraybridge {

struct WaitingLine::Entry {
  uint64_t id = 0;
  Waiter waiter;
  std::optional<MemoryKey> memory;     // else it waits for names
  std::vector<std::string> name_keys;  // under which it is in for_name_
  bool busy = false;                   // its retry runs
  bool again = false;                  // something happened while it ran
  bool overdue = false;                // its deadline came while it ran
  bool gone = false;                   // answered, cancelled or expired: not in the tables any more
  bool refused = false;                // counted in refused_
};

namespace {

// Namespaces of different owners may share a key: then a retry too many is made, never one too few.
std::string NameKey(std::string_view ns, std::string_view name) {
  std::string key(ns);
  key += '\0';
  key += name;
  return key;
}

}  // namespace

WaitingLine::WaitingLine(const Limits& limits) : limits_(limits), timers_("ab-deadlines") {}

WaitingLine::~WaitingLine() = default;

Result<WaitingLine::EntryPointer> WaitingLine::Insert(Waiter waiter) {
  auto& mine = of_session_[Number(waiter.session)];
  if (mine.size() >= limits_.queued_requests_per_session) {
    return ResourceExhausted("the session has ", mine.size(), " requests waiting (limits.queued_requests_per_session ",
                             limits_.queued_requests_per_session, ")")
        .Because("QUEUED_REQUESTS");
  }
  auto entry = std::make_shared<Entry>();
  entry->id = ++last_id_;
  entry->waiter = std::move(waiter);
  mine.insert(entry->id);
  entries_.emplace(entry->id, entry);
  if (entry->waiter.deadline) {
    deadlines_.emplace(*entry->waiter.deadline, entry->id);
    Arm(*entry->waiter.deadline);
  }
  return entry;
}

void WaitingLine::Remove(Entry& entry) {
  if (entry.gone) return;
  entry.gone = true;
  entries_.erase(entry.id);
  const auto session = of_session_.find(Number(entry.waiter.session));
  session->second.erase(entry.id);
  if (session->second.empty()) of_session_.erase(session);
  if (entry.waiter.deadline) deadlines_.erase({*entry.waiter.deadline, entry.id});
  if (entry.refused) refused_.fetch_sub(1, std::memory_order_relaxed);
  if (entry.memory) {
    memory_waiters_.fetch_sub(1);
    const auto queue = for_memory_.find(*entry.memory);
    queue->second.erase(entry.id);
    if (queue->second.empty()) for_memory_.erase(queue);
    return;
  }
  name_waiters_.fetch_sub(1);
  for (const std::string& key : entry.name_keys) {
    const auto waiters = for_name_.find(key);
    if (waiters == for_name_.end()) continue;  // the same name twice in one request
    waiters->second.erase(entry.id);
    if (waiters->second.empty()) for_name_.erase(waiters);
  }
}

Result<WaiterId> WaitingLine::WaitForMemory(uint32_t uid, std::string_view ns, Waiter waiter) {
  MutexLock lock(mutex_);
  auto entry = Insert(std::move(waiter));
  if (!entry.ok()) return entry.status();
  (*entry)->memory = MemoryKey{uid, std::string(ns)};
  for_memory_[*(*entry)->memory].insert((*entry)->id);
  memory_waiters_.fetch_add(1);
  return WaiterId{(*entry)->id};
}

Result<WaiterId> WaitingLine::WaitForNames(std::string_view ns, std::span<const std::string_view> names,
                                           Waiter waiter) {
  EntryPointer entry;
  {
    MutexLock lock(mutex_);
    auto inserted = Insert(std::move(waiter));
    if (!inserted.ok()) return inserted.status();
    entry = *std::move(inserted);
    name_waiters_.fetch_add(1);
    for (const std::string_view name : names) {
      entry->name_keys.push_back(NameKey(ns, name));
      for_name_[entry->name_keys.back()].insert(entry->id);
    }
  }
  return Try(entry, true) ? WaiterId{} : WaiterId{entry->id};
}

// From its first refusal on, memory is wanted.
void WaitingLine::MarkRefused(Entry& entry) {
  if (!entry.memory || entry.refused) return;
  entry.refused = true;
  refused_.fetch_add(1, std::memory_order_relaxed);
}

// One thread at a time runs an entry's retry; who comes meanwhile makes it run once more.
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
  while (true) {
    const Deliver deliver = entry->waiter.retry(first);
    bool waits_on = false;
    {
      MutexLock lock(mutex_);
      if (deliver) Remove(*entry);
      if (!entry->gone && std::exchange(entry->again, false)) continue;
      entry->busy = false;
      waits_on = !entry->gone;
      if (waits_on && first) MarkRefused(*entry);
    }
    if (deliver) deliver();
    if (!waits_on) return true;
    break;
  }
  Expire(entry);
  MutexLock lock(mutex_);
  return entry->gone;
}

// Takes it out if its time has come and answers so.
void WaitingLine::Expire(const EntryPointer& entry) {
  {
    MutexLock lock(mutex_);
    if (!entry->overdue || entry->busy || entry->gone) return;
    Remove(*entry);
  }
  entry->waiter.expire();
}

void WaitingLine::ServeMemory() {
  std::vector<MemoryKey> keys;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, queue] : for_memory_) keys.push_back(key);
  }
  for (const MemoryKey& key : keys) ServeNamespace(key);
}

// In order. The first that must wait keeps the place: those behind it only look at what is theirs already.
void WaitingLine::ServeNamespace(const MemoryKey& key) {
  std::vector<EntryPointer> queue;
  {
    MutexLock lock(mutex_);
    const auto found = for_memory_.find(key);
    if (found == for_memory_.end()) return;
    for (const uint64_t id : found->second) queue.push_back(entries_.at(id));
  }
  bool first = true;
  for (const EntryPointer& entry : queue) {
    if (!entry->waiter.deadline) {
      MutexLock lock(mutex_);
      entry->overdue = true;  // tried once, then it expires
    }
    if (!Try(entry, first)) first = false;
  }
}

void WaitingLine::NamePublished(std::string_view ns, std::string_view name) {
  if (name_waiters_.load() == 0) return;
  std::vector<EntryPointer> waiters;
  {
    MutexLock lock(mutex_);
    const auto found = for_name_.find(NameKey(ns, name));
    if (found == for_name_.end()) return;
    for (const uint64_t id : found->second) waiters.push_back(entries_.at(id));
  }
  for (const EntryPointer& entry : waiters) Try(entry, true);
}

void WaitingLine::Cancel(WaiterId waiter) {
  EntryPointer entry;  // dies after the lock
  MutexLock lock(mutex_);
  const auto found = entries_.find(static_cast<uint64_t>(waiter));
  if (found == entries_.end()) return;
  entry = found->second;
  Remove(*entry);
}

void WaitingLine::DropSession(SessionId session) {
  std::vector<EntryPointer> dropped;  // die after the lock
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

// One timer for the earliest deadline, not one a request.
void WaitingLine::Arm(Clock::time_point deadline) {
  if (armed_ && *armed_ <= deadline) return;
  armed_ = deadline;
  timers_.PostAt(deadline, [this] { ExpireDue(); });
}

void WaitingLine::ExpireDue() {
  std::vector<EntryPointer> due;
  {
    MutexLock lock(mutex_);
    const auto now = Clock::now();
    for (const auto& [deadline, id] : deadlines_) {
      if (deadline > now) break;
      due.push_back(entries_.at(id));
    }
    for (const EntryPointer& entry : due) {
      entry->overdue = true;
      deadlines_.erase({*entry->waiter.deadline, entry->id});
    }
    armed_.reset();
    if (!deadlines_.empty()) Arm(deadlines_.begin()->first);
  }
  for (const EntryPointer& entry : due) Expire(entry);
}

}  // namespace arraybridge

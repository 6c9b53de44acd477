#include "daemon/broker/events.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/at_limit.h"
#include "daemon/broker/snapshot.h"

namespace arraybridge {
namespace {

Status NotOpen() { return NotFound("this watch is not open").Because("WATCH_NOT_OPEN"); }

}  // namespace

void Events::Tell(Event event) {
  if (!watched()) return;
  event.time_ns = NowNs();
  const auto shared = std::make_shared<const Event>(std::move(event));
  const MutexLock lock(mutex_);
  for (auto& [id, watcher] : watchers_) {
    if (watcher.Sees(*shared) && watcher.filter.Wants(*shared)) Give(id, watcher, shared);
  }
}

void Events::Give(WatcherId id, Watcher& watcher, const std::shared_ptr<const Event>& event) {
  if (watcher.lost > 0 || watcher.queue.size() >= limits_.events_per_watcher) {
    ++watcher.lost;
    dropped_total_.fetch_add(1, std::memory_order_relaxed);
  } else {
    watcher.queue.push_back(event);
  }
  if (!std::exchange(watcher.asked, false)) return;
  news_.push_back(id);
  news_came_.NotifyOne();
}

bool Events::Watcher::Sees(const Event& event) const {
  return event.owner == kSharedByUsers ? shared.contains(event.ns) : event.owner == uid;
}

Result<WatcherId> Events::Open(SessionId session, uint32_t uid, std::set<std::string> shared, EventFilter filter) {
  const MutexLock lock(mutex_);
  if (watchers_.size() >= limits_.watchers) return AtLimit("TOO_MANY_WATCHERS", "watchers", limits_.watchers);
  const auto own = of_uid_.find(uid);
  if (own != of_uid_.end() && own->second >= limits_.watchers_per_uid) {
    return AtLimit("TOO_MANY_WATCHERS", "watchers_per_uid", limits_.watchers_per_uid);
  }
  const WatcherId id{++last_watcher_};
  Watcher watcher;
  watcher.session = session;
  watcher.uid = uid;
  watcher.shared = std::move(shared);
  watcher.filter = std::move(filter);
  watchers_.emplace(id, std::move(watcher));
  ++of_uid_[uid];
  watchers_open_.store(watchers_.size(), std::memory_order_relaxed);
  return id;
}

Result<Events::Taken> Events::Take(SessionId session, WatcherId id, size_t bytes_max) {
  const MutexLock lock(mutex_);
  const auto found = watchers_.find(id);
  if (found == watchers_.end() || found->second.session != session) return NotOpen();
  Watcher& watcher = found->second;
  Taken taken;
  size_t bytes = 0;
  while (!watcher.queue.empty()) {
    bytes += watcher.queue.front()->message_bytes_max();
    if (bytes > bytes_max && !taken.empty()) break;
    taken.push_back(std::move(watcher.queue.front()));
    watcher.queue.pop_front();
  }
  watcher.asked = taken.empty();
  if (!taken.empty() || watcher.lost == 0) return taken;
  const uint64_t lost = watcher.lost;
  Forget(found);
  return ResourceExhausted("the watcher read too slowly and lost ", lost, " events (limits.events_per_watcher ",
                           limits_.events_per_watcher, ")")
      .Because("WATCH_CUT")
      .With("lost", std::to_string(lost));
}

bool Events::Close(SessionId session, WatcherId id) {
  const MutexLock lock(mutex_);
  const auto found = watchers_.find(id);
  if (found == watchers_.end() || found->second.session != session) return false;
  Forget(found);
  return true;
}

void Events::CloseAll(SessionId session) {
  if (!watched()) return;
  const MutexLock lock(mutex_);
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    const auto current = it++;
    if (current->second.session == session) Forget(current);
  }
}

void Events::Forget(Watchers::iterator watcher) {
  const auto own = of_uid_.find(watcher->second.uid);
  if (--own->second == 0) of_uid_.erase(own);
  watchers_.erase(watcher);
  watchers_open_.store(watchers_.size(), std::memory_order_relaxed);
}

std::vector<WatcherId> Events::WaitForNews() {
  const MutexLock lock(mutex_);
  while (news_.empty() && !stopped_) news_came_.Wait(mutex_);
  return stopped_ ? std::vector<WatcherId>{} : std::exchange(news_, {});
}

void Events::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  news_came_.NotifyAll();
}

}  // namespace arraybridge

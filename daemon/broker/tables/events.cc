// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/events.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/at_limit.h"
#include "daemon/broker/ledger/snapshot.h"
#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {
namespace {

Status NotOpen() { return NotFound("this watch is not open").Because("WATCH_NOT_OPEN"); }

Event EventOf(EventKind kind, const Session* who, uint32_t owner) {
  Event event;
  event.kind = kind;
  event.owner = owner;
  if (who == nullptr) return event;
  event.session = who->id;
  event.process_id = who->peer.process_id;
  event.uid = who->peer.uid;
  return event;
}

// In a shared namespace other users see the names of shares, but not the processes.
void HideProcess(Event* event) {
  if (event->owner != kSharedByUsers) return;
  event->session = {};
  event->process_id = 0;
}

}  // namespace

void Events::Emit(Event event) {
  if (!watched()) return;
  event.time_ns = NowNs();
  const auto shared = std::make_shared<const Event>(std::move(event));
  const MutexLock lock(mutex_);
  for (auto& [id, watcher] : watchers_) {
    if (watcher.Sees(*shared) && watcher.filter.Wants(*shared)) Deliver(id, watcher, shared);
  }
}

void Events::Emit(EventKind kind, const Session* who, const Share& share, std::string_view text) {
  if (!watched()) return;
  Event event = EventOf(kind, who, share.ns->uid());
  HideProcess(&event);
  event.ns = share.facts->ns;
  event.name = share.facts->name;
  event.share = share.facts->id;
  event.generation = share.facts->generation;
  event.bytes = share.size;
  event.device = share.arena->device();
  (kind == EventKind::kWithdraw ? event.reason : event.note) = text;
  Emit(std::move(event));
}

void Events::EmitSession(EventKind kind, const Session& session) {
  if (!watched()) return;
  Event event = EventOf(kind, &session, session.peer.uid);
  event.note = session.peer.client;
  Emit(std::move(event));
}

void Events::EmitAllocate(const Session& session, const Arena& arena) {
  if (!watched()) return;
  Event event = EventOf(EventKind::kAllocate, &session, arena.ns()->uid());
  HideProcess(&event);
  event.ns = arena.ns()->name();
  event.bytes = arena.footprint();
  event.device = arena.device();
  Emit(std::move(event));
}

void Events::EmitRelease(const Session& session, LeaseId lease) {
  if (!watched()) return;
  const auto found = session.leases.find(lease);
  if (found != session.leases.end()) Emit(EventKind::kRelease, &session, *found->second, {});
}

void Events::Deliver(WatcherId id, Watcher& watcher, const std::shared_ptr<const Event>& event) {
  if (watcher.lost > 0 || watcher.queue.size() >= limits_.events_per_watcher) {
    ++watcher.lost;
    dropped_total_.fetch_add(1, std::memory_order_relaxed);
  } else {
    watcher.queue.push_back(event);
  }
  if (!std::exchange(watcher.found_nothing, false)) return;
  news_.push_back(id);
  news_came_.NotifyOne();
}

bool Events::Watcher::Sees(const Event& event) const {
  return event.owner == kSharedByUsers ? shared.contains(event.ns) : event.owner == uid;
}

Result<WatcherId> Events::Open(SessionId session, uint32_t uid, std::set<std::string> shared, EventFilter filter) {
  const MutexLock lock(mutex_);
  const auto found = of_uid_.find(uid);
  const uint64_t own = found == of_uid_.end() ? 0 : found->second;
  if (own >= limits_.watchers_per_uid()) {
    return ByLimit(ResourceExhausted("user ", uid, " has ", own, " open watches, its part of limits.watchers (",
                                     limits_.watchers, "): close one"),
                   "TOO_MANY_WATCHERS", "watchers", limits_.watchers);
  }
  AB_RETURN_IF_ERROR(CheckSharedLimit({"TOO_MANY_WATCHERS", "watchers", limits_.watchers, watchers_.size()}, uid, own));
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
  watcher.found_nothing = taken.empty();
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

}  // namespace arraybridge::daemon

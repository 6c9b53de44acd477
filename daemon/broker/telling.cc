// What is told to those who watch, and what is kept for those who trace: nothing is made of it unless somebody watches.
// Events has a lock of its own, and wakes nobody who would want the broker's.
#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/broker/state.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

constexpr size_t kRefusalBytesMax = 256;  // of a refusal's message

Event Refusal(uint32_t uid, std::string_view verb, const Status& refusal) {
  Event event;
  event.kind = refusal.code() == Code::kResourceExhausted ? EventKind::kQuota : EventKind::kRefusal;
  event.owner = event.uid = uid;
  event.code = refusal.code();
  event.reason = refusal.reason();
  event.verb = verb;
  event.note = FirstBytes(refusal.message(), kRefusalBytesMax);
  return event;
}

// Users who share a namespace see each other's names for things, not each other's processes.
void HideProcess(Event* event) {
  if (event->owner != kSharedByUsers) return;
  event->session = {};
  event->process_id = 0;
}

}  // namespace

Event Broker::State::EventOf(EventKind kind, const Session* who, uint32_t owner) {
  Event event;
  event.kind = kind;
  event.owner = owner;
  if (who == nullptr) return event;
  event.session = who->id;
  event.process_id = who->peer.process_id;
  event.uid = who->peer.uid;
  return event;
}

void Broker::State::TellShare(EventKind kind, const Session* who, const Share& share, std::string_view text) {
  if (!events.watched()) return;
  Event event = EventOf(kind, who, share.ns->uid());
  HideProcess(&event);
  event.ns = share.facts->ns;
  event.name = share.facts->name;
  event.share = share.facts->id;
  event.generation = share.facts->generation;
  event.bytes = share.size;
  event.device = share.arena->device();
  (kind == EventKind::kWithdraw ? event.reason : event.note) = text;
  events.Tell(std::move(event));
}

void Broker::State::TellSession(EventKind kind, const Session& session) {
  if (!events.watched()) return;
  Event event = EventOf(kind, &session, session.peer.uid);
  event.note = session.peer.client;
  events.Tell(std::move(event));
}

void Broker::State::TellRelease(const Session& session, LeaseId lease) {
  const auto found = session.leases.find(lease);
  if (found != session.leases.end()) TellShare(EventKind::kRelease, &session, *found->second, {});
}

void Broker::State::TellArena(const Session& session, const Arena& arena) {
  if (!events.watched()) return;
  Event event = EventOf(EventKind::kAllocate, &session, arena.ns()->uid());
  HideProcess(&event);
  event.ns = arena.ns()->name();
  event.bytes = arena.footprint();
  event.device = arena.device();
  events.Tell(std::move(event));
}

Visitor Broker::State::VisitorOf(const Session& session) {
  return {session.id, session.client, session.peer.process_id, session.peer.uid};
}

uint64_t Broker::State::HistoryRoom(const Share& share) const {
  const uint64_t has = accounts.at(share.maker_uid)->description_bytes;
  const uint64_t own = share.history == nullptr ? 0 : share.history->bytes();
  const uint64_t of_uid = config.limits.description_bytes_per_uid / 2;  // the other half is for what its user says
  const uint64_t left = of_uid - std::min(of_uid, has - std::min(has, own));
  return std::min<uint64_t>(config.limits.history_bytes_per_share, left);
}

void Broker::State::ChargeHistory(const Share& share, uint64_t before) {
  const uint64_t after = share.history->bytes();
  if (after != before)
    accounts.at(share.maker_uid)->description_bytes += after - before;  // wraps round where it is less
}

void Broker::State::NoteReader(const Session& session, Share& share, std::string_view note) {
  if (share.withdrawn) return;  // nobody can ask about it
  if (share.history == nullptr) share.history = std::make_unique<History>();
  const uint64_t before = share.history->bytes();
  share.history->Read(VisitorOf(session), note, NowNs(), HistoryRoom(share));
  ChargeHistory(share, before);
}

void Broker::Renote(SessionId session, ShareId id, std::string_view note) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  if (found == nullptr) return;
  for (const uint32_t owner : {found->peer.uid, kSharedByUsers}) {
    for (auto ns = state.namespaces.lower_bound(NamespaceKey{owner, {}});
         ns != state.namespaces.end() && ns->first.uid == owner; ++ns) {
      Share* const share = ns->second->FindById(id);
      if (share == nullptr || share->history == nullptr) continue;
      const uint64_t before = share->history->bytes();
      share->history->Renote(session, note, state.HistoryRoom(*share));
      return state.ChargeHistory(*share, before);
    }
  }
}

Events& Broker::events() { return state_->events; }
const Events& Broker::events() const { return state_->events; }

// Under the lock, so that a session that ends closes it.
Result<WatcherId> Broker::OpenWatch(SessionId session, EventFilter filter) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  if (!filter.ns.empty()) {
    const auto place = state.KeyOf(*found, filter.ns, Right::kRead);
    if (!place.ok()) return place.status();
  }
  std::set<std::string> shared;
  for (const auto& [name, policy] : state.policies) {
    if (!filter.ns.empty() && filter.ns != name) continue;
    if (policy.shared() && state.MayList(found->peer, {kSharedByUsers, name})) shared.insert(name);
  }
  auto opened = state.events.Open(session, found->peer.uid, shared, std::move(filter));
  if (opened.ok()) found->watches.merge(shared);
  return opened;
}

void Broker::TellRefusal(SessionId session, std::string_view verb, const Status& refusal) {
  State& state = *state_;
  if (!state.events.watched()) return;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  if (found == nullptr) return;
  Event event = Refusal(found->peer.uid, verb, refusal);
  event.session = session;
  event.process_id = found->peer.process_id;
  if (!found->peer.token.empty()) event.note.clear();  // it may name what the token alone opens
  state.events.Tell(std::move(event));
}

void Broker::TellRefusal(const Peer& peer, std::string_view verb, const Status& refusal) {
  if (!state_->events.watched()) return;
  Event event = Refusal(peer.uid, verb, refusal);
  event.process_id = peer.process_id;
  state_->events.Tell(std::move(event));
}

}  // namespace arraybridge

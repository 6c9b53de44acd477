// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on watches, and the events of refusals. The lock of Events is taken after the broker's lock.
#include <utility>

#include "daemon/broker/verbs/state.h"
#include "proto/boundary/text.h"

namespace arraybridge::daemon {
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

}  // namespace

void Broker::Renote(SessionId session, ShareId id, std::string_view note) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.sessions.Find(session);
  if (found == nullptr) return;
  for (const uint32_t owner : {found->peer.uid, kSharedByUsers}) {
    for (auto ns = state.namespaces.all().lower_bound(NamespaceKey{owner, {}});
         ns != state.namespaces.all().end() && ns->first.uid == owner; ++ns) {
      Share* const share = ns->second->FindById(id);
      if (share == nullptr || share->history == nullptr) continue;
      return state.leases.Renote(session, *share, note);
    }
  }
}

Events& Broker::events() { return state_->events; }
const Events& Broker::events() const { return state_->events; }

// Opens the watch under the lock, so that the end of the session closes it.
Result<WatcherId> Broker::OpenWatch(SessionId session, EventFilter filter) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  if (!filter.ns.empty()) AB_RETURN_IF_ERROR(state.rights.KeyOf(found->peer, filter.ns, Right::kRead).status());
  std::set<std::string> shared;
  for (const auto& [name, policy] : state.rights.policies()) {
    if (!filter.ns.empty() && filter.ns != name) continue;
    if (policy.shared() && state.rights.MayList(found->peer, {kSharedByUsers, name})) shared.insert(name);
  }
  auto opened = state.events.Open(session, found->peer.uid, shared, std::move(filter));
  if (opened.ok()) found->watches.merge(shared);
  return opened;
}

void Broker::EmitRefusal(SessionId session, std::string_view verb, const Status& refusal) {
  State& state = *state_;
  if (!state.events.watched()) return;
  const MutexLock lock(state.mutex);
  const Session* const found = state.sessions.Find(session);
  if (found == nullptr) return;
  Event event = Refusal(found->peer.uid, verb, refusal);
  event.session = session;
  event.process_id = found->peer.process_id;
  // the note may name something that only the token gives access to
  if (!found->peer.token.empty()) event.note.clear();
  state.events.Emit(std::move(event));
}

void Broker::EmitRefusal(const Peer& peer, std::string_view verb, const Status& refusal) {
  if (!state_->events.watched()) return;
  Event event = Refusal(peer.uid, verb, refusal);
  event.process_id = peer.process_id;
  state_->events.Emit(std::move(event));
}

}  // namespace arraybridge::daemon

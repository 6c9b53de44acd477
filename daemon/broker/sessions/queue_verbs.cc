// The Broker's verbs on session queues.
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {

Result<std::vector<UniqueFd>> Broker::OpenQueueOf(SessionId session, std::string_view ns) {
  State& state = *state_;
  const std::string_view name = NamespaceNameOf(ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", name, state.config.limits.name_bytes_max));
  auto made = SessionQueue::Create(Number(session));
  if (!made.ok()) return made.status();
  const std::shared_ptr<SessionQueue> queue = *std::move(made);
  auto exported = queue->Export();
  if (!exported.ok()) return exported;
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.sessions.Find(session);
    if (found == nullptr) return NoSession();
    if (found->queue != nullptr) {
      return FailedPrecondition("session ", Number(session), " has a queue already").Because("QUEUE_TAKEN");
    }
    const uint64_t most = state.config.limits.session_queues_per_uid;
    if (found->account->queues >= most) return AtLimit("TOO_MANY_QUEUES", "session_queues_per_uid", most);
    OpenQueue open{session, std::nullopt, std::string(name), queue};
    if (const auto key = state.rights.KeyOf(found->peer, name, Right::kWrite); key.ok()) open.owner = key->uid;
    state.sessions.AddQueue(*found, std::move(open));
  }
  return exported;
}

bool Broker::has_queues() const { return state_->flags.has_queues.load(std::memory_order_acquire); }

std::optional<OpenQueue> Broker::QueueOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  return state_->sessions.FindQueue(session);
}

std::vector<OpenQueue> Broker::PendingQueues(SessionId session, std::optional<std::string_view> ns) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.sessions.Find(session);
  std::vector<OpenQueue> pending;
  if (found == nullptr) return pending;
  for (const OpenQueue& each : state.sessions.queues()) {
    if (!each.owner || (ns && each.ns != NamespaceNameOf(*ns))) continue;
    if (each.queue->HasRequest() && state.rights.MayList(found->peer, {*each.owner, each.ns})) pending.push_back(each);
  }
  return pending;
}

}  // namespace arraybridge

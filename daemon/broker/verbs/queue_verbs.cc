// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on session queues.
#include <utility>

#include "daemon/broker/verbs/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {

Result<std::vector<UniqueFd>> Broker::OpenQueueOf(SessionId session, std::string_view ns) {
  State& state = *state_;
  const std::string_view name = NamespaceNameOf(ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", name, state.config.limits.name_bytes_max));
  uint64_t number = 0;  // in the name of the stored files
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
    AB_RETURN_IF_ERROR(state.accounts.CheckDescriptors(*found, 0, kEntriesOfQueue));
    AB_RETURN_IF_ERROR(state.journal.CheckRoom(name.size()));
    number = state.journal.NextPage();
  }
  AB_ASSIGN_OR_RETURN(auto made, SessionQueue::Create(Number(session), state.journal.keeps()));
  const std::shared_ptr<SessionQueue> queue = std::move(made);
  AB_ASSIGN_OR_RETURN(const auto files, queue->ExportForNextDaemon());
  auto kept = state.journal.Store(StoredName(kStoredQueue, number), std::array{files.at(0).get(), files.at(1).get()});
  if (!kept.ok()) return kept.status();
  queue->stored = *std::move(kept);
  static_cast<void>(Failpoint("queue_stored"));
  auto exported = queue->Export();
  if (!exported.ok()) return exported;
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
    if (found->queue != nullptr) {
      return FailedPrecondition("session ", Number(session), " has a queue already").Because("QUEUE_TAKEN");
    }
    AB_RETURN_IF_ERROR(state.accounts.CheckObjects(*found, "TOO_MANY_QUEUES", object_bytes::kQueue));
    OpenQueue open{session, std::nullopt, std::string(name), queue};
    if (const auto key = state.rights.KeyOf(found->peer, name, Right::kWrite); key.ok()) open.owner = key->uid;
    const record::Page its{.id = number, .session = Number(session), .ns_uid = open.owner, .ns = name};
    found->queue_record = state.journal.Add(record::kQueue, its);
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
    if (each.queue->MayHavePublish() && state.rights.MayList(found->peer, {*each.owner, each.ns}))
      pending.push_back(each);
  }
  return pending;
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/sessions.h"

#include <algorithm>
#include <utility>

namespace arraybridge::daemon {

Status NoSession() { return NotFound("no such session").Because("SESSION_ENDED"); }

Session* Sessions::Find(SessionId id) const {
  const auto found = all_.find(id);
  return found == all_.end() ? nullptr : found->second.get();
}

Result<Session*> Sessions::Get(SessionId id) const {
  if (Session* const found = Find(id); found != nullptr) return found;
  return NoSession();
}

std::optional<SessionId> Sessions::Of(std::span<const uint8_t> token) const {
  Token key{};
  if (token.size() != key.size()) return std::nullopt;
  std::ranges::copy(token, key.begin());
  const auto found = tokens_.find(key);
  return found == tokens_.end() ? std::nullopt : std::optional(found->second);
}

OpenedSession Sessions::Add(std::unique_ptr<Session> session) {
  session->id = SessionId{ids.Next()};
  Session& added = Restore(std::move(session));
  journal_.Put(added);
  return {added.id, added.token};
}

Session& Sessions::Restore(std::unique_ptr<Session> session) {
  ++session->account->sessions;
  if (session->awaited) ++awaited;
  Session& added = *session;
  tokens_.emplace(added.token, added.id);
  all_.emplace(added.id, std::move(session));
  return added;
}

std::unique_ptr<Session> Sessions::Remove(SessionId id) {
  auto node = all_.extract(id);
  if (node.empty()) return nullptr;
  std::unique_ptr<Session> removed = std::move(node.mapped());
  tokens_.erase(removed->token);
  --removed->account->sessions;
  if (removed->awaited) --awaited;
  tickets.expired += removed->tickets.size();
  return removed;
}

void Sessions::DropLateTickets(Session& session, Clock::time_point now) {
  for (const Ticket& late : session.tickets.TakeLate(now)) {
    ++tickets.expired;
    journal_.Erase(late.record);
  }
}

void Sessions::SetAwaited(Session& session, bool is_awaited) {
  if (session.awaited != is_awaited) awaited += is_awaited ? 1 : -1;
  session.awaited = is_awaited;
}

void Sessions::AddQueue(Session& session, OpenQueue open) {
  ++session.account->queues;
  session.queue = open.queue;
  queues_.push_back(std::move(open));
  flags_.has_queues.store(true, std::memory_order_release);
}

void Sessions::DropQueue(Session& session) {
  if (session.queue == nullptr) return;
  --session.account->queues;
  std::erase_if(queues_, [&](const OpenQueue& each) { return each.session == session.id; });
  flags_.has_queues.store(!queues_.empty(), std::memory_order_release);
  released_.Add(std::exchange(session.queue, nullptr));
}

std::optional<OpenQueue> Sessions::FindQueue(SessionId session) const {
  const auto found = std::ranges::find(queues_, session, &OpenQueue::session);
  return found == queues_.end() ? std::nullopt : std::optional(*found);
}

}  // namespace arraybridge::daemon

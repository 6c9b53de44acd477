// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on sessions and their rights.
#include <utility>

#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

Broker::Broker(const Config& config, std::vector<MemoryBackend*> backends)
    : state_(std::make_unique<State>(config, std::move(backends))) {}
Broker::~Broker() = default;

const Token& Broker::broker_id() const { return state_->broker_id; }

Result<OpenedSession> Broker::OpenSession(Peer peer) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  auto session = std::make_unique<Session>();
  session->token = RandomBytes<Token>();
  session->peer = std::move(peer);
  session->client = std::make_shared<const std::string>(session->peer.client);
  session->born = Clock::now();

  const MutexLock lock(state.mutex);
  AB_RETURN_IF_ERROR(state.journal.CheckRoom());
  session->account = state.accounts.Of(session->peer.uid);
  if (session->account->sessions >= limits.sessions_per_uid) {
    return AtLimit("TOO_MANY_SESSIONS", "sessions_per_uid", limits.sessions_per_uid);
  }
  const SharedLimit all{"TOO_MANY_SESSIONS", "sessions", limits.sessions, state.sessions.all().size()};
  AB_RETURN_IF_ERROR(CheckSharedLimit(all, session->peer.uid, session->account->sessions));
  AB_RETURN_IF_ERROR(state.accounts.CheckSessionEntry(session->peer.uid));
  const Session& added = *session;
  const OpenedSession opened = state.sessions.Add(std::move(session));
  state.events.EmitSession(EventKind::kSessionBegin, added);
  return opened;
}

std::optional<SessionId> Broker::AwaitedOf(uint32_t uid) const {
  const MutexLock lock(state_->mutex);
  if (state_->sessions.awaited == 0) return std::nullopt;
  for (const auto& [id, session] : state_->sessions.all()) {
    if (session->awaited && session->peer.uid == uid) return id;
  }
  return std::nullopt;
}

Result<OpenedSession> Broker::ContinueSession(std::span<const uint8_t> token, Peer peer) {
  const MutexLock lock(state_->mutex);
  const auto id = state_->sessions.Of(token);
  Session* const found = id ? state_->sessions.Find(*id) : nullptr;
  // The right uid: another user's token is refused as an unknown one.
  if (found == nullptr || !found->awaited || found->peer.uid != peer.uid) return NoSession();
  AB_RETURN_IF_ERROR(state_->journal.CheckRoom());
  if (peer.token.empty()) peer.token = found->peer.token;
  std::swap(found->peer, peer);
  // Daemons before this one gave pages to those who may only read, too.
  if (!state_->UsesOnlyWhatItMay(*found, Right::kRead)) {
    std::swap(found->peer, peer);
    return PermissionDenied("the session uses a namespace without a right to it").Because("NO_RIGHTS");
  }
  found->client = std::make_shared<const std::string>(found->peer.client);
  state_->sessions.SetAwaited(*found, false);
  state_->arenas.Continue(*found);
  state_->journal.Put(*found);
  return OpenedSession{found->id, found->token};
}

bool Broker::StopAwaiting(SessionId session) {
  const MutexLock lock(state_->mutex);
  Session* const found = state_->sessions.Find(session);
  if (found == nullptr || !found->awaited) return false;
  state_->sessions.SetAwaited(*found, false);
  return true;
}

void Broker::AwaitAgain(SessionId session) {
  const MutexLock lock(state_->mutex);
  Session* const found = state_->sessions.Find(session);
  if (found != nullptr && !found->awaited) state_->sessions.SetAwaited(*found, true);
}

Result<OpenedSession> Broker::OpenedAs(SessionId session) const {
  const MutexLock lock(state_->mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state_->sessions.Get(session));
  return OpenedSession{session, found->token};
}

Result<SessionId> Broker::SessionOf(std::span<const uint8_t> token) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->sessions.Of(token);
  if (!found) return NoSession();
  return *found;
}

Result<uint32_t> Broker::UidOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state_->sessions.Get(session));
  return found->peer.uid;
}

Result<Peer> Broker::PeerOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state_->sessions.Get(session));
  return found->peer;
}

void Broker::OfferAnew(SessionId session, Peer offered) {
  const MutexLock lock(state_->mutex);
  Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return;
  std::swap(found->peer.kinds, offered.kinds);
  std::swap(found->peer.refused, offered.refused);
  std::swap(found->peer.gpus, offered.gpus);
  if (state_->journal.CheckRoom().ok()) state_->journal.Put(*found);
}

void Broker::Stop() {
  const MutexLock lock(state_->mutex);
  state_->stopping = true;
}

std::vector<ChannelId> Broker::EndSession(SessionId session, std::vector<std::shared_ptr<const Claim>>* claims) {
  State& state = *state_;
  DeferredRelease::Objects released;                                  // destroyed after the lock
  std::vector<std::shared_ptr<DirectChannelRecord>> direct_channels;  // likewise
  const MutexLock lock(state.mutex);
  std::unique_ptr<Session> removed = state.sessions.Remove(session);
  if (removed == nullptr) return {};
  Session& ended = *removed;
  std::vector<ChannelId> channels;
  for (const auto& [id, end] : ended.ends) channels.push_back(end.channel->id());
  while (!ended.claims.empty()) {
    const Claim& claim = *ended.claims.begin()->second;
    auto its = state.EndClaim(ended, *state.namespaces.Find({claim.owner, claim.ns}), claim.name);
    if (claims != nullptr) claims->push_back(std::move(its));
  }
  state.sessions.DropQueue(ended);
  direct_channels = state.TakeDirectChannels(session);
  state.events.CloseAll(session);
  ended.ended = Clock::now();
  state.arenas.because = FreeCause::kSessionEnd;
  // Closes the ends at once, so that waiting sessions learn of it. The session has not closed its sending ends.
  for (const auto& [id, end] : std::exchange(ended.ends, {})) {
    state.channels.Close(ended, id, end, EndedHow::kDied, ended.ended);
  }
  for (const Ticket& ticket : ended.tickets.all()) state.journal.Erase(ticket.record);
  state.journal.Erase(std::exchange(ended.queue_record, 0));
  state.journal.Erase(ended);  // the next daemon closes ends whose session is there and whose client is gone
  state.stopping ? state.ended_sessions.AddUncleared(std::move(removed)) : state.ended_sessions.Add(std::move(removed));
  state.events.EmitSession(EventKind::kSessionEnd, ended);
  released = state.released.Take();
  return channels;
}

}  // namespace arraybridge::daemon

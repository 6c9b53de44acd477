// The Broker's verbs on sessions and their rights.
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {

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
  AB_RETURN_IF_ERROR(state.rights.CheckMayCome(session->peer));
  if (state.sessions.all().size() >= limits.sessions) return AtLimit("TOO_MANY_SESSIONS", "sessions", limits.sessions);
  session->account = state.accounts.Of(session->peer.uid);
  if (session->account->sessions >= limits.sessions_per_uid) {
    return AtLimit("TOO_MANY_SESSIONS", "sessions_per_uid", limits.sessions_per_uid);
  }
  const Session& added = *session;
  const OpenedSession opened = state.sessions.Add(std::move(session));
  state.events.EmitSession(EventKind::kSessionBegin, added);
  return opened;
}

Result<SessionId> Broker::SessionOf(std::span<const uint8_t> token) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->sessions.Of(token);
  if (!found) return NoSession();
  return *found;
}

Result<uint32_t> Broker::UidOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return NoSession();
  return found->peer.uid;
}

Result<Peer> Broker::PeerOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return NoSession();
  return found->peer;
}

void Broker::OfferAnew(SessionId session, Peer offered) {
  const MutexLock lock(state_->mutex);
  Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return;
  std::swap(found->peer.kinds, offered.kinds);
  std::swap(found->peer.refused, offered.refused);
  std::swap(found->peer.gpus, offered.gpus);
}

std::vector<ChannelId> Broker::EndSession(SessionId session) {
  State& state = *state_;
  DeferredRelease::Objects released;                                  // destroyed after the lock
  std::vector<std::shared_ptr<DirectChannelRecord>> direct_channels;  // likewise
  const MutexLock lock(state.mutex);
  std::unique_ptr<Session> removed = state.sessions.Remove(session);
  if (removed == nullptr) return {};
  Session& ended = *removed;
  std::vector<ChannelId> channels;
  for (const auto& [id, end] : ended.ends) channels.push_back(end.channel->id());
  state.sessions.DropQueue(ended);
  direct_channels = state.TakeDirectChannels(session);
  state.events.CloseAll(session);
  ended.ended = Clock::now();
  state.arenas.because = FreeCause::kSessionEnd;
  // Closes the ends at once, so that waiting sessions learn of it. The session has not closed its sending ends.
  for (const auto& [id, end] : std::exchange(ended.ends, {})) {
    state.channels.Close(ended, id, end, EndedHow::kDied, ended.ended);
  }
  state.ended_sessions.Add(std::move(removed));
  state.events.EmitSession(EventKind::kSessionEnd, ended);
  released = state.released.Take();
  return channels;
}

}  // namespace arraybridge

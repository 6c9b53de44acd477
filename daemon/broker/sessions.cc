// The Broker's verbs on sessions, and the lookups of all its verbs. Other verbs are in arenas.cc, shares.cc,
// channels.cc, session_queues.cc, direct_channels.cc and listing.cc; reclaim.cc has the ends of all of them.
#include <algorithm>
#include <set>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {

Broker::Broker(const Config& config, std::vector<MemoryBackend*> backends)
    : state_(std::make_unique<State>(config, std::move(backends))) {}
Broker::~Broker() = default;

const Token& Broker::broker_id() const { return state_->broker_id; }

Session* Broker::State::FindSession(SessionId id) const {
  const auto found = sessions.find(id);
  return found == sessions.end() ? nullptr : found->second.get();
}

Namespace* Broker::State::FindNamespace(const NamespaceKey& key) const {
  const auto found = namespaces.find(key);
  return found == namespaces.end() ? nullptr : found->second.get();
}

Arena* Broker::State::FindArena(ArenaId id) const {
  const auto found = arenas.find(id);
  return found == arenas.end() ? nullptr : found->second.get();
}

Arena* Broker::State::FindWritable(const Session& session, ArenaId id) const {
  Arena* const arena = FindArena(id);
  return arena != nullptr && arena->writer == &session ? arena : nullptr;
}

Arena* Broker::State::FindReadable(const Session& session, ArenaId id) const {
  Arena* const arena = FindArena(id);
  if (arena == nullptr) return nullptr;
  if (arena->maker == &session) return arena;
  const auto use = session.uses.find(arena);
  return use != session.uses.end() && use->second.leases > 0 ? arena : nullptr;
}

namespace {

bool IsMeant(const Device& asked, const Device& served) {
  if (asked.type != served.type) return false;
  return asked.uuid.empty() ? asked.id == served.id : asked.uuid == served.uuid;
}

std::string NameOf(const Device& device) {
  if (device.type == kDeviceCpu && device.id == 0) return "CPU";
  if (!device.uuid.empty()) return device.uuid;
  return Concat("type ", device.type, ", id ", device.id);
}

void Append(std::string& list, std::string_view name) {
  if (!list.empty()) list += ", ";
  list += name;
}

}  // namespace

std::string Peer::who() const { return is_remote() ? Concat("subject '", subject.front(), "'") : Concat("user ", uid); }

bool Peer::Opens(HandleKind kind) const { return std::ranges::find(kinds, kind) != kinds.end(); }

Status Peer::CannotOpen(std::string_view what, std::string_view shared_as) const {
  std::string own;
  for (const HandleKind kind : kinds) Append(own, NameOf(kind));
  return FailedPrecondition(what, " is shared as ", shared_as, "; this session opens ", own,
                            refused.empty() ? "" : "; ", refused)
      .Because("KIND_NOT_OFFERED");
}

bool Peer::Sees(const Device& device) const {
  return gpus.empty() || device.uuid.empty() || std::ranges::find(gpus, device.uuid) != gpus.end();
}

Status Peer::CannotSee(std::string_view what, const Device& device) const {
  std::string seen;
  for (const std::string& gpu : gpus) Append(seen, gpu);
  return FailedPrecondition(what, " lies on GPU ", device.uuid, ", which this session does not see; it sees ", seen)
      .Because("DEVICE_NOT_VISIBLE");
}

Status Peer::CannotOpen(std::string_view what, HandleKind kind, const Device& device) const {
  return Opens(kind) ? CannotSee(what, device) : CannotOpen(what, NameOf(kind));
}

Result<Broker::State::Served> Broker::State::BackendFor(const Peer& peer, const Device& device) const {
  for (MemoryBackend* const backend : backends) {
    for (const Device& served : backend->devices()) {
      if (!IsMeant(device, served) || !peer.Opens(backend->kind())) continue;
      if (!peer.Sees(served)) return peer.CannotSee("what is asked for", served);
      return Served{backend, served};
    }
  }
  std::string kinds;
  std::set<std::string> devices;  // one that is shared in two ways is there once
  for (const MemoryBackend* const backend : backends) {
    for (const Device& served : backend->devices()) {
      devices.insert(NameOf(served));
      if (IsMeant(device, served)) Append(kinds, NameOf(backend->kind()));
    }
  }
  if (!kinds.empty()) return peer.CannotOpen("device " + NameOf(device), kinds);
  std::string listed;
  for (const std::string& name : devices) Append(listed, name);
  return InvalidArgument("no device ", NameOf(device), "; there are: ", listed).Because("UNKNOWN_DEVICE");
}

Result<OpenedSession> Broker::OpenSession(Peer peer) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  auto session = std::make_unique<Session>();
  session->token = RandomBytes<Token>();
  session->peer = std::move(peer);
  session->client = std::make_shared<const std::string>(session->peer.client);
  session->born = Clock::now();

  const MutexLock lock(state.mutex);
  AB_RETURN_IF_ERROR(state.CheckMayCome(session->peer));
  if (state.sessions.size() >= limits.sessions) return AtLimit("TOO_MANY_SESSIONS", "sessions", limits.sessions);
  session->account = state.AccountOf(session->peer.uid);
  if (session->account->sessions >= limits.sessions_per_uid) {
    return AtLimit("TOO_MANY_SESSIONS", "sessions_per_uid", limits.sessions_per_uid);
  }
  ++session->account->sessions;
  session->id = SessionId{++state.last_session};
  const OpenedSession opened{session->id, session->token};
  state.tokens.emplace(opened.token, opened.session);
  state.TellSession(EventKind::kSessionBegin, *session);
  state.sessions.emplace(opened.session, std::move(session));
  return opened;
}

Result<SessionId> Broker::SessionOf(std::span<const uint8_t> token) const {
  Token key{};
  if (token.size() != key.size()) return NoSession();
  std::ranges::copy(token, key.begin());
  const MutexLock lock(state_->mutex);
  const auto found = state_->tokens.find(key);
  if (found == state_->tokens.end()) return NoSession();
  return found->second;
}

Result<uint32_t> Broker::UidOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->FindSession(session);
  if (found == nullptr) return NoSession();
  return found->peer.uid;
}

Result<Peer> Broker::PeerOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->FindSession(session);
  if (found == nullptr) return NoSession();
  return found->peer;
}

void Broker::OfferAnew(SessionId session, Peer offered) {
  const MutexLock lock(state_->mutex);
  Session* const found = state_->FindSession(session);
  if (found == nullptr) return;
  std::swap(found->peer.kinds, offered.kinds);
  std::swap(found->peer.refused, offered.refused);
  std::swap(found->peer.gpus, offered.gpus);
}

std::vector<ChannelId> Broker::EndSession(SessionId session) {
  State& state = *state_;
  std::unique_ptr<Session> ended;                                     // dies after the lock
  std::vector<std::shared_ptr<DirectChannelRecord>> direct_channels;  // too
  std::vector<std::shared_ptr<const void>> dropped;
  const MutexLock lock(state.mutex);
  auto node = state.sessions.extract(session);
  if (node.empty()) return {};
  ended = std::move(node.mapped());
  state.tokens.erase(ended->token);
  --ended->account->sessions;
  std::vector<ChannelId> channels;
  for (const auto& [id, end] : ended->ends) channels.push_back(end.channel->id());
  state.DropQueue(*ended);
  direct_channels = state.TakeDirectChannels(session);
  state.tickets_expired_total += ended->tickets.size();
  state.events.CloseAll(session);
  ended->ended = Clock::now();
  state.because = FreeCause::kSessionEnd;
  // At once, so that those who wait there hear it. Without a word it has not closed what it sends.
  for (const auto& [id, end] : std::exchange(ended->ends, {})) state.Close(*ended, id, end, false, ended->ended);
  uint64_t steps = kStepsAtOnce;
  const bool cleared = state.Abandon(*ended, &steps);
  dropped.swap(state.dropped);
  state.because = FreeCause::kRelease;
  state.TellSession(EventKind::kSessionEnd, *ended);
  if (cleared) return channels;
  state.leaving.push_back(std::move(ended));
  state.sweep_wanted.store(true);
  return channels;
}

Result<EndedFences> Broker::EndFences(SessionId session, std::span<const uint64_t> done,
                                      std::span<const uint64_t> lost) {
  State& state = *state_;
  EndedFences ended;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  for (const uint64_t share : done) state.EndFence(*found, ShareId{share}, false, &ended);
  for (const uint64_t share : lost) state.EndFence(*found, ShareId{share}, true, &ended);
  return ended;
}

Result<ReleasedLeases> Broker::Release(SessionId session, std::span<const uint64_t> leases,
                                       std::span<const uint64_t> arenas, std::span<const uint64_t> unmapped) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  ReleasedLeases released;
  for (const uint64_t lease : leases) {
    if (state.events.watched()) state.TellRelease(*found, LeaseId{lease});
    if (state.EndLease(*found, LeaseId{lease})) ++released.released;
  }
  for (const uint64_t id : unmapped) {
    Arena* const arena = state.FindArena(ArenaId{id});
    if (arena != nullptr && state.WillMapAgain(*found, *arena)) continue;
    state.DropHolder(ArenaId{id}, session, Access::kRead);
    if (arena != nullptr) state.Forget(*found, *arena);
  }
  for (const uint64_t id : arenas) {
    state.DropHolder(ArenaId{id}, session, Access::kWrite);
    if (Arena* const arena = state.FindWritable(*found, ArenaId{id}); arena != nullptr) state.GiveBack(*arena);
  }
  return released;
}

std::vector<DeviceFacts> Broker::Devices() const {
  std::vector<DeviceFacts> facts;
  const auto of = [&](const Device& device) -> DeviceFacts& {
    const auto known = std::ranges::find(facts, device, &DeviceFacts::device);
    if (known != facts.end()) return *known;
    facts.push_back({.device = device, .kinds = {}, .refused = {}});
    return facts.back();
  };
  for (const MemoryBackend* backend : state_->backends) {
    for (const Device& device : backend->devices()) {
      DeviceFacts& served = of(device);
      served.kinds.push_back(backend->kind());
      const MemoryBackend::Usage usage = backend->usage(device);
      served.capacity_bytes = usage.capacity_bytes;
      served.allocated_bytes = usage.allocated_bytes;
      served.cached_bytes = usage.cached_bytes;
    }
    for (const MemoryBackend::Refusal& refusal : backend->refusals()) {
      DeviceFacts& refused = of(refusal.device);
      refused.refused.push_back({backend->kind(), refusal.why, refusal.cause});
      refused.out_of_service = refused.out_of_service || refusal.cause == RefusalCause::kFailed;
    }
  }
  const MutexLock lock(state_->mutex);
  for (const auto& arena : state_->dying) of(arena->device()).quarantined_bytes += arena->footprint();
  return facts;
}

Snapshot Broker::TakeSnapshot() const {
  const State& state = *state_;
  Snapshot snapshot;
  std::vector<std::shared_ptr<HoldsPage>> pages;
  state.Count(&snapshot, &pages);
  for (const auto& page : pages) snapshot.holds += page->count();  // a page a session and namespace: not under the lock
  return snapshot;
}

void Broker::State::Count(Snapshot* counted, std::vector<std::shared_ptr<HoldsPage>>* pages) const {
  Snapshot& snapshot = *counted;
  const MutexLock lock(mutex);
  snapshot.sessions = sessions.size();
  snapshot.leases = leases;
  for (const auto& [key, ns] : namespaces) {
    snapshot.shares += ns->named();
    snapshot.withdrawn_shares += ns->shares().size() - ns->named();
    snapshot.channels += ns->channels.size();
    snapshot.queued_shares += ns->queued_shares;
    snapshot.charged_bytes += ns->quota().used();
    snapshot.pinned_bytes += ns->holding.pinned_bytes();
    for (const Holding::Page& page : ns->holding.pages()) pages->push_back(page.holds);
  }
  snapshot.withdrawn_shares -= snapshot.queued_shares;
  snapshot.queued_shares += direct_channels.standing();
  for (const auto& [id, session] : sessions) snapshot.tickets += session->tickets.size();
  snapshot.arenas = arenas.size();
  snapshot.dying_arenas = dying.size() + being_swept;
  snapshot.sessions_total = last_session;
  snapshot.publishes_total = publishes_total;
  snapshot.acquires_total = acquires_total;
  snapshot.withdrawals_total = withdrawals_total;
  snapshot.tickets_redeemed_total = tickets_redeemed_total;
  snapshot.tickets_expired_total = tickets_expired_total;
  snapshot.tickets_refused_total = tickets_refused_total;
  snapshot.pending_fences = pending_fences;
  snapshot.lost_fences_total = lost_fences_total;
  snapshot.watchers = events.watchers();
  snapshot.events_dropped_total = events.dropped_total();
  snapshot.flows = flows.rows();
}

}  // namespace arraybridge

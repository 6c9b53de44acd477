// The Broker's part in what sessions write instead of frames: who has a ring, and in which of them something waits;
// mailboxes.
#include <algorithm>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

Status NoRing() { return NotFound("the session has no publish ring").Because("NO_RING"); }

}  // namespace

Result<UniqueFd> Broker::OpenRing(SessionId session, std::string_view ns) {
  State& state = *state_;
  const std::string_view name = NamespaceNameOf(ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", name, state.config.limits.name_bytes_max));
  auto made = PublishRing::Create();
  if (!made.ok()) return made.status();
  const std::shared_ptr<PublishRing> ring = *std::move(made);
  {
    const MutexLock lock(state.mutex);
    Session* const found = state.FindSession(session);
    if (found == nullptr) return NoSession();
    const auto key = state.KeyOf(*found, name, Right::kWrite);
    if (!key.ok()) return key.status();
    if (found->ring != nullptr) {
      return FailedPrecondition("session ", Number(session), " has a publish ring already").Because("RING_TAKEN");
    }
    const uint64_t rings_max = state.config.limits.rings_per_uid;
    if (found->account->rings >= rings_max) return AtLimit("TOO_MANY_RINGS", "rings_per_uid", rings_max);
    AB_RETURN_IF_ERROR(state.CheckDescriptors(*found, kDescriptorsOfRing));
    ++found->account->rings;
    found->ring = ring;
    state.rings.push_back({session, found->peer.uid, key->uid, std::string(name), ring});
    state.has_rings.store(true, std::memory_order_release);
  }
  return ring->ExportEntries();
}

Result<UniqueFd> Broker::ExportBell(SessionId session) {
  const auto found = RingOf(session);
  return found ? found->ring->ExportBell() : NoRing();
}

Status Broker::RingMapped(SessionId session) {
  const auto found = RingOf(session);
  return found ? found->ring->Seal() : NoRing();
}

Result<std::unique_ptr<SessionMailbox>> Broker::MakeMailbox(SessionId session) const {
  {
    const MutexLock lock(state_->mutex);
    if (state_->FindSession(session) == nullptr) return NoSession();
  }
  return SessionMailbox::Create();
}

bool Broker::has_rings() const { return state_->has_rings.load(std::memory_order_acquire); }

std::optional<SessionRing> Broker::RingOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  const auto found = std::ranges::find(state_->rings, session, &SessionRing::session);
  if (found == state_->rings.end()) return std::nullopt;
  return *found;
}

std::vector<SessionRing> Broker::PendingRings(SessionId session, std::optional<std::string_view> ns) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  std::vector<SessionRing> pending;
  if (found == nullptr) return pending;
  for (const SessionRing& each : state.rings) {
    if (ns && each.ns != NamespaceNameOf(*ns)) continue;
    if (each.ring->pending() && state.MayList(found->peer, {each.owner, each.ns})) pending.push_back(each);
  }
  return pending;
}

void Broker::State::DropRing(Session& session) {
  if (session.ring == nullptr) return;
  --session.account->rings;
  std::erase_if(rings, [&](const SessionRing& each) { return each.session == session.id; });
  has_rings.store(!rings.empty(), std::memory_order_release);
  dropped.push_back(std::exchange(session.ring, nullptr));
}

}  // namespace arraybridge

// The Broker's part in reading without calls: who gets a catalogue and a page of holds, which withdrawn bytes wait for
// the end of a hold, and who keeps too many of them waiting.
#include <algorithm>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

constexpr uint64_t kPartOfCapacity = 2;  // of a device, that one session may pin unless the operator says otherwise

Status NoNamespace(std::string_view ns) {
  return NotFound("namespace '", NamespaceNameOf(ns), "' is not there").Because("NAMESPACE_NOT_FOUND");
}

bool Serves(const MemoryBackend& backend, const Device& device) {
  const std::vector<Device> devices = backend.devices();
  return std::ranges::find(devices, device) != devices.end();
}

}  // namespace

Result<UniqueFd> Broker::ExportCatalogue(SessionId session, std::string_view ns) {
  State& state = *state_;
  std::shared_ptr<Catalogue> catalogue;
  std::shared_ptr<Catalogue> fresh;  // dies after the lock if another came first
  for (bool again = true;; again = false) {
    {
      const MutexLock lock(state.mutex);
      const Session* const found = state.FindSession(session);
      if (found == nullptr) return NoSession();
      const auto key = state.KeyOf(*found, ns, Right::kRead);
      if (!key.ok()) return key.status();
      Namespace* const owner = state.FindNamespace(*key);
      if (owner == nullptr) return NoNamespace(ns);
      if (owner->holding.catalogue == nullptr) owner->holding.catalogue = std::exchange(fresh, nullptr);
      catalogue = owner->holding.catalogue;
    }
    if (catalogue != nullptr) return catalogue->Export();
    AB_CHECK(again);
    auto made = Catalogue::Create(state.config.limits.catalogue_shares, state.broker_id);
    if (!made.ok()) return made.status();
    fresh = *std::move(made);
  }
}

// One page a session and namespace, however often it is asked for: pages are charged to nobody.
Result<UniqueFd> Broker::ExportHolds(SessionId session, std::string_view ns) {
  State& state = *state_;
  std::shared_ptr<HoldsPage> page;
  std::shared_ptr<HoldsPage> fresh;  // dies after the lock if another came first
  for (bool again = true;; again = false) {
    {
      const MutexLock lock(state.mutex);
      Session* const found = state.FindSession(session);
      if (found == nullptr) return NoSession();
      const auto key = state.KeyOf(*found, ns, Right::kRead);
      if (!key.ok()) return key.status();
      Namespace* const owner = state.FindNamespace(*key);
      if (owner == nullptr || owner->holding.catalogue == nullptr) return NoNamespace(ns);
      page = owner->holding.PageOf(*found);
      if (page == nullptr && fresh != nullptr) {
        page = std::exchange(fresh, nullptr);
        owner->holding.Add(*found, page);
        found->holds_in.push_back(owner);
      }
    }
    if (page != nullptr) return page->Export();
    AB_CHECK(again);
    auto made = HoldsPage::Create();
    if (!made.ok()) return made.status();
    fresh = *std::move(made);
  }
}

Status Broker::HoldsMapped(SessionId session, std::string_view ns) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const auto key = state.KeyOf(*found, ns, Right::kRead);
  if (!key.ok()) return key.status();
  const Namespace* const owner = state.FindNamespace(*key);
  const std::shared_ptr<HoldsPage> page = owner == nullptr ? nullptr : owner->holding.PageOf(*found);
  return page == nullptr ? NoNamespace(ns) : page->Seal();
}

bool Broker::holds_waiting() const { return state_->holds_waiting.load(std::memory_order_relaxed); }

Broker::Looked Broker::LookAtHolds() {
  State& state = *state_;
  Looked looked;
  Pins pins;
  const MutexLock lock(state.mutex);
  const std::vector<Namespace*> namespaces(state.waited_in.begin(), state.waited_in.end());
  for (Namespace* const ns : namespaces) looked.freed += state.SettleUnheld(*ns, pins);
  for (const auto& [session, pinned] : pins) {
    const bool over = std::ranges::any_of(
        pinned, [&](const PinnedBytes& of) { return of.bytes > state.pinned_bytes_max(of.device); });
    if (over) looked.over_limit.push_back(session->id);
  }
  return looked;
}

uint64_t Broker::State::SettleUnheld(Namespace& ns, Pins& pins) {
  const std::vector<Share*> unheld = ns.holding.Look(pins);
  for (Share* const share : unheld) Settle(*share);
  return unheld.size();
}

uint64_t Broker::State::pinned_bytes_max(const Device& device) const {
  if (config.limits.pinned_bytes_per_session != 0) return config.limits.pinned_bytes_per_session;
  const auto serves = [&](const MemoryBackend* backend) { return Serves(*backend, device); };
  const auto found = std::ranges::find_if(backends, serves);
  AB_CHECK(found != backends.end());  // the bytes are some backend's
  return (*found)->usage(device).capacity_bytes / kPartOfCapacity;
}

// A share that alone is more than a session may pin is acquired by calls. A hold of it would cut its reader as soon as
// somebody withdraws it; a lease is charged to nobody's pins.
void Broker::State::Enter(Share& share) {
  Holding& holding = share.ns->holding;
  if (holding.catalogue == nullptr || share.entry.has_value()) return;
  if (share.size <= pinned_bytes_max(share.arena->device())) holding.Enter(share);
}

void Broker::State::Await(Share& share) {
  share.ns->holding.waiting.insert(&share);
  waited_in.insert(share.ns);
  holds_waiting.store(true, std::memory_order_relaxed);
}

void Broker::State::Unwait(Share& share) {
  auto& waiting = share.ns->holding.waiting;
  if (waiting.erase(&share) == 0 || !waiting.empty()) return;
  waited_in.erase(share.ns);
  if (waited_in.empty()) holds_waiting.store(false, std::memory_order_relaxed);
}

void Broker::State::DropHolds(Session& session) {
  Pins pins;
  for (Namespace* const ns : std::exchange(session.holds_in, {})) {
    ns->holding.Drop(session);
    if (!ns->holding.waiting.empty()) SettleUnheld(*ns, pins);
  }
}

void Broker::State::MarkEnforced(Arena& arena) {
  arena.immutability = Immutability::kEnforced;
  for (const auto& [offset, share] : arena.shares()) {
    if (share->entry.has_value() && !share->retired) share->ns->holding.catalogue->SetEnforced(*share->entry);
  }
}

}  // namespace arraybridge

// The Broker's part in reading without calls: who gets a catalogue and a page of holds, which withdrawn bytes wait for
// the end of a hold, and who keeps too many of them waiting.
#include <algorithm>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

constexpr uint64_t kTurnNs = 50'000;     // that a look for one user costs, about, before it is another's turn
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
      if (owner->holding.catalogue == nullptr) {
        AB_RETURN_IF_ERROR(state.CheckDescriptors(*found, 1));
        if (fresh != nullptr) ++state.AccountOf(key->uid)->catalogues;
        owner->holding.catalogue = std::exchange(fresh, nullptr);
      }
      catalogue = owner->holding.catalogue;
    }
    if (catalogue != nullptr) return catalogue->Export();
    AB_CHECK(again);
    auto made = Catalogue::Create(state.config.limits.catalogue_shares, state.broker_id);
    if (!made.ok()) return made.status();
    fresh = *std::move(made);
  }
}

// One page a session and namespace, however often it is asked for.
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
      if (page == nullptr) AB_RETURN_IF_ERROR(state.CheckPage(*found));
      if (page == nullptr && fresh != nullptr) {
        ++found->account->hold_pages;
        ++found->account->unmapped_hold_pages;
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

Status Broker::State::CheckPage(const Session& session) const {
  const uint64_t most = config.limits.hold_pages_per_uid;
  if (session.account->hold_pages >= most) return AtLimit("TOO_MANY_HOLD_PAGES", "hold_pages_per_uid", most);
  return CheckDescriptors(session, 1);
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
  if (page == nullptr) return NoNamespace(ns);
  if (page->sealed()) return Ok();
  AB_RETURN_IF_ERROR(page->Seal());
  --found->account->unmapped_hold_pages;
  return Ok();
}

bool Broker::holds_waiting() const { return state_->holds_waiting.load(std::memory_order_relaxed); }

Broker::Looked Broker::LookAtHolds() {
  {
    const MutexLock lock(state_->mutex);
    for (Namespace* const ns : state_->waited_in) state_->WantLook(*ns);
  }
  return LookOn();
}

Broker::Looked Broker::LookOn() {
  State& state = *state_;
  Looked looked;
  const MutexLock lock(state.mutex);
  looked.freed = state.LookFor(kLookNs);
  looked.over_limit = std::exchange(state.over_limit, {});
  looked.more = !state.to_look_at.empty();
  return looked;
}

bool Broker::HoldEnded(SessionId session) {
  State& state = *state_;
  if (!holds_waiting()) return false;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  bool any = false;
  for (Namespace* const ns : found == nullptr ? std::vector<Namespace*>{} : found->holds_in) {
    if (!ns->holding.waits()) continue;
    state.WantLook(*ns);
    any = true;
  }
  return any;
}

void Broker::State::WantLook(Namespace& ns) {
  if (!to_look_at.emplace(ns.uid(), &ns).second) ns.holding.again = true;
}

Namespace* Broker::State::NextToLookAt() {
  uint64_t uid = looked_at;
  for (bool wrapped = false; !to_look_at.empty();) {
    auto next = to_look_at.lower_bound({uid + 1, nullptr});
    if (next == to_look_at.end()) {
      if (std::exchange(wrapped, true)) return nullptr;
      next = to_look_at.begin();
    }
    uid = next->first;
    if (Namespace* const ns = NextOf(static_cast<uint32_t>(uid)); ns != nullptr) {
      looked_at = uid;
      return ns;
    }
  }
  return nullptr;
}

// The one behind the last, so that none waits for another whose rounds never end. Null: what they may cost is spent.
Namespace* Broker::State::NextOf(uint32_t uid) {
  Namespace*& last = AccountOf(uid)->looked_at;
  const auto begin = to_look_at.lower_bound({uid, nullptr});
  const auto behind = to_look_at.upper_bound({uid, last});
  const auto end = to_look_at.lower_bound({uint64_t{uid} + 1, nullptr});
  const auto may_cost = [](const auto& entry) { return entry.second->holding.budget->has_some(); };
  auto found = std::find_if(behind, end, may_cost);
  if (found == end) found = std::find_if(begin, behind, may_cost);
  if (found == end || (found == behind && !may_cost(*behind))) return nullptr;
  last = found->second;
  return last;
}

uint64_t Broker::State::LookFor(uint64_t cost_max_ns) {
  uint64_t freed = 0;
  for (uint64_t cost_ns = 0; cost_ns < cost_max_ns;) {
    Namespace* const ns = NextToLookAt();
    if (ns == nullptr) break;
    const Holding::Slice slice = ns->holding.Look(std::min(kTurnNs, cost_max_ns - cost_ns));
    ns->holding.budget->Spend(slice.cost_ns);
    cost_ns += std::max<uint64_t>(slice.cost_ns, 1);
    if (slice.round_ended) EndRound(*ns);
    for (Share* const share : slice.unheld) freed += GoOnUnheld(*share) ? 1 : 0;
  }
  return freed;
}

// True: its bytes wait no more.
bool Broker::State::GoOnUnheld(Share& share) {
  if (IsLetGo(share)) return Reuse(share), true;
  Unwait(share);  // an orphan
  if (share.leases == 0) Withdraw(share, nullptr, "orphaned");
  return false;
}

// What each session pins is known now.
void Broker::State::EndRound(Namespace& ns) {
  if (!ns.holding.again) to_look_at.erase({ns.uid(), &ns});
  for (Holding::Page& page : ns.holding.pages()) {
    if (page.counting.empty() && page.pinned.empty()) continue;
    Pins& pinned = page.session->pinned;
    for (const PinnedBytes& before : page.pinned) AddPinned(pinned, before.device, -before.bytes);  // wraps round
    for (const PinnedBytes& now : page.counting) AddPinned(pinned, now.device, now.bytes);
    page.pinned = std::exchange(page.counting, {});
    const bool over =
        std::ranges::any_of(pinned, [&](const PinnedBytes& of) { return of.bytes > pinned_bytes_max(of.device); });
    if (over) over_limit.push_back(page.session->id);
  }
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
  share.ns->holding.Await(share);
  waited_in.insert(share.ns);
  holds_waiting.store(true, std::memory_order_relaxed);
}

void Broker::State::Unwait(Share& share) {
  if (!share.ns->holding.Unwait(share) || share.ns->holding.waits()) return;
  waited_in.erase(share.ns);
  if (waited_in.empty()) holds_waiting.store(false, std::memory_order_relaxed);
}

void Broker::State::UncountPage(const Holding::Page& page) {
  Account& account = *page.session->account;
  --account.hold_pages;
  if (!page.holds->sealed()) --account.unmapped_hold_pages;
}

// Many sessions may end at once: what waited for their holds is looked at in one round for all of them, unless that
// costs little.
void Broker::State::DropHolds(Session& session) {
  for (Namespace* const ns : std::exchange(session.holds_in, {})) {
    Holding::Page page = ns->holding.Drop(session);
    UncountPage(page);
    dropped.push_back(std::move(page.holds));
    if (ns->holding.waits()) WantLook(*ns);
  }
  LookFor(kTurnNs);
}

void Broker::State::MarkEnforced(Arena& arena) {
  arena.immutability = Immutability::kEnforced;
  for (const auto& [offset, share] : arena.shares()) {
    if (share->entry.has_value() && !share->retired) share->ns->holding.catalogue->SetEnforced(*share->entry);
  }
}

}  // namespace arraybridge

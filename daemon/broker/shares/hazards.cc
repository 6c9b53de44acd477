#include "daemon/broker/shares/hazards.h"

#include <algorithm>

#include "daemon/at_limit.h"
#include "daemon/broker/arenas/arena.h"
#include "daemon/broker/quota/namespace.h"
#include "daemon/broker/sessions/session.h"
#include "daemon/broker/shares/share.h"

namespace arraybridge {
namespace {

void Uncount(const NamespaceHazards::Page& page) {
  Account& account = *page.session->account;
  --account.hazard_pages;
  if (!page.page->sealed()) --account.unmapped_hazard_pages;
}

}  // namespace

Hazards::Hazards(const Config& config, const Backends& backends, Accounts& accounts, Flags& flags,
                 DeferredRelease& released, Journal& journal)
    : pins(config, backends, accounts, flags),
      config_(config),
      accounts_(accounts),
      flags_(flags),
      released_(released),
      journal_(journal) {}

Status Hazards::CheckPage(const Session& session) const {
  const uint64_t most = config_.limits.hazard_pages_per_uid;
  if (session.account->hazard_pages >= most) return AtLimit("TOO_MANY_HAZARD_PAGES", "hazard_pages_per_uid", most);
  AB_RETURN_IF_ERROR(accounts_.CheckEntries(session, 1));
  return accounts_.CheckDescriptors(session, 1);
}

void Hazards::AddPage(Namespace& ns, Session& session, const std::shared_ptr<HazardPage>& page, uint32_t record) {
  ++session.account->hazard_pages;
  if (!page->sealed()) ++session.account->unmapped_hazard_pages;
  ns.hazards.Add(session, page, record);
  session.hazard_pages_in.push_back(&ns);
}

void Hazards::DropPages(Session& session) {
  for (Namespace* const ns : std::exchange(session.hazard_pages_in, {})) {
    NamespaceHazards::Page page = ns->hazards.Drop(session);
    // The next round finds what the user's other sessions hold.
    if (const auto its = ns->hazards.users.find(session.peer.uid); its != ns->hazards.users.end()) {
      session.account->pinned.Drop(its->second.pinned.Drop(page.pinned));
      its->second.counting.Drop(page.counting);
    }
    Uncount(page);
    journal_.Erase(page.record);
    released_.Add(std::move(page.page));
    if (ns->hazards.waits()) WantLook(*ns);
  }
}

void Hazards::DropPages(Namespace& ns) {
  UnpinAll(ns.hazards);
  for (const NamespaceHazards::Page& page : ns.hazards.pages()) {
    std::erase(page.session->hazard_pages_in, &ns);
    Uncount(page);
    journal_.Erase(page.record);
  }
  journal_.Erase(std::exchange(ns.hazards.catalogue_record, 0));
  if (ns.hazards.catalogue != nullptr) {
    --accounts_.Of(ns.uid())->catalogues;
    ns.hazards.catalogue->Close();
  }
  to_look_at_.erase({ns.uid(), &ns});
}

// A share that alone exceeds a session's limit of pinned bytes is acquired by calls: a hazard slot on it would end its
// reader's session as soon as the share is withdrawn.
void Hazards::Insert(Share& share) const {
  NamespaceHazards& hazards = share.ns->hazards;
  if (hazards.catalogue == nullptr || share.entry.has_value()) return;
  if (share.size <= pins.BytesOfSessionMax(share.arena->device())) hazards.Insert(share);
}

void Hazards::MarkEnforced(const Arena& arena) {
  const auto mark = [](const Share& share) {
    if (share.entry.has_value() && !share.retired) share.ns->hazards.catalogue->SetEnforced(*share.entry);
  };
  for (const auto& [offset, share] : arena.shares()) mark(*share);
  for (const Share* const share : arena.forwards()) mark(*share);
}

void Hazards::Await(Share& share) {
  share.ns->hazards.Await(share);
  waited_in_.insert(share.ns);
  flags_.hazards_waiting.store(true, std::memory_order_relaxed);
}

void Hazards::Unwait(Share& share) {
  if (!share.ns->hazards.Unwait(share) || share.ns->hazards.waits()) return;
  UnpinAll(share.ns->hazards);
  waited_in_.erase(share.ns);
  if (waited_in_.empty()) flags_.hazards_waiting.store(false, std::memory_order_relaxed);
}

void Hazards::WantLook(Namespace& ns) {
  if (!to_look_at_.emplace(ns.uid(), &ns).second) ns.hazards.again = true;
}

void Hazards::WantLooks() {
  for (Namespace* const ns : waited_in_) WantLook(*ns);
}

std::optional<NamespaceHazards::Slice> Hazards::Look(uint64_t cost_max_ns) {
  Namespace* const ns = Next();
  if (ns == nullptr) return std::nullopt;
  NamespaceHazards::Slice slice = ns->hazards.Look(std::min(kLookTurnNs, cost_max_ns));
  ns->hazards.budget->Spend(slice.cost_ns);
  if (slice.round_ended) EndRound(*ns);
  return slice;
}

// The next user in turn whose budget is not spent, and one of that user's namespaces.
Namespace* Hazards::Next() {
  uint64_t uid = looked_at_;
  for (bool wrapped = false; !to_look_at_.empty();) {
    auto next = to_look_at_.lower_bound({uid + 1, nullptr});
    if (next == to_look_at_.end()) {
      if (std::exchange(wrapped, true)) return nullptr;
      next = to_look_at_.begin();
    }
    uid = next->first;
    if (Namespace* const ns = NextOf(static_cast<uint32_t>(uid)); ns != nullptr) {
      looked_at_ = uid;
      return ns;
    }
  }
  return nullptr;
}

// The namespace after the last one, so that no namespace waits for one whose rounds never end. Null: the budget is
// spent.
Namespace* Hazards::NextOf(uint32_t uid) {
  Namespace*& last = accounts_.Of(uid)->looked_at;
  const auto begin = to_look_at_.lower_bound({uid, nullptr});
  const auto behind = to_look_at_.upper_bound({uid, last});
  const auto end = to_look_at_.lower_bound({uint64_t{uid} + 1, nullptr});
  const auto may_cost = [](const auto& entry) { return entry.second->hazards.budget->has_some(); };
  auto found = std::find_if(behind, end, may_cost);
  if (found == end) found = std::find_if(begin, behind, may_cost);
  if (found == end || (found == behind && !may_cost(*behind))) return nullptr;
  last = found->second;
  return last;
}

void Hazards::UnpinAll(NamespaceHazards& hazards) {
  for (NamespaceHazards::Page& page : hazards.pages()) {
    page.session->pinned.Drop(std::exchange(page.pinned, {}));
    page.counting = {};
  }
  for (const auto& [uid, of_user] : std::exchange(hazards.users, {})) accounts_.Of(uid)->pinned.Drop(of_user.pinned);
}

// The round has seen every page of the namespace and knows the bytes that each session and each user pins there.
void Hazards::EndRound(Namespace& ns) {
  if (!ns.hazards.again) to_look_at_.erase({ns.uid(), &ns});
  for (NamespaceHazards::Page& page : ns.hazards.pages()) {
    if (page.counting.empty() && page.pinned.empty()) continue;
    Pins& pinned = page.session->pinned;
    pinned.Drop(page.pinned);
    pinned.Add(page.counting);
    page.pinned = std::exchange(page.counting, {});
    pins.Check(*page.session);
  }
  for (auto& [uid, of_user] : ns.hazards.users) {
    Pins& pinned = accounts_.Of(uid)->pinned;
    pinned.Drop(of_user.pinned);
    pinned.Add(of_user.counting);
    of_user.pinned = std::exchange(of_user.counting, {});
    pins.CheckUser(uid);
  }
  std::erase_if(ns.hazards.users, [](const auto& entry) { return entry.second.pinned.empty(); });
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/hazards.h"

#include <algorithm>

#include "daemon/at_limit.h"
#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kPartOfCapacity = 2;  // by default one session may pin half of a device

void Uncount(const NamespaceHazards::Page& page) {
  Account& account = *page.session->account;
  --account.hazard_pages;
  if (!page.page->sealed()) --account.unmapped_hazard_pages;
}

}  // namespace

Hazards::Hazards(const Config& config, const Backends& backends, Accounts& accounts, Flags& flags,
                 DeferredRelease& released, Journal& journal)
    : config_(config),
      backends_(backends),
      accounts_(accounts),
      flags_(flags),
      released_(released),
      journal_(journal) {}

Status Hazards::CheckPage(const Session& session) const {
  AB_RETURN_IF_ERROR(accounts_.CheckObjects(session, "TOO_MANY_HAZARD_PAGES", object_bytes::kHazardPage));
  return accounts_.CheckDescriptors(session, 1, 1);
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
    Uncount(page);
    journal_.Erase(page.record);
    released_.Add(std::move(page.page));
    if (ns->hazards.waits()) WantLook(*ns);
  }
}

void Hazards::DropPages(Namespace& ns) {
  for (const NamespaceHazards::Page& page : ns.hazards.pages()) {
    std::erase(page.session->hazard_pages_in, &ns);
    for (const PinnedBytes& was : page.pinned) AddPinned(page.session->pinned, was.device, -was.bytes);
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
  if (hazards.catalogue == nullptr || share.entry.has_value() || share.arena->is_on_disk()) return;
  if (share.size <= PinnedBytesMax(share.arena->device())) hazards.Insert(share);
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

// The namespace after the last one, so that none waits for one whose rounds never end. Null: the budget is spent.
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

// The round has seen every page of the namespace and knows the bytes that each session pins there.
void Hazards::EndRound(Namespace& ns) {
  if (!ns.hazards.again) to_look_at_.erase({ns.uid(), &ns});
  for (NamespaceHazards::Page& page : ns.hazards.pages()) {
    if (page.counting.empty() && page.pinned.empty()) continue;
    Pins& pinned = page.session->pinned;
    // adding a negative number wraps round
    for (const PinnedBytes& before : page.pinned) AddPinned(pinned, before.device, -before.bytes);
    for (const PinnedBytes& now : page.counting) AddPinned(pinned, now.device, now.bytes);
    page.pinned = std::exchange(page.counting, {});
    const bool over =
        std::ranges::any_of(pinned, [&](const PinnedBytes& of) { return of.bytes > PinnedBytesMax(of.device); });
    if (over) over_limit_.push_back(page.session->id);
  }
}

uint64_t Hazards::PinnedBytesMax(const Device& device) const {
  const uint64_t chosen = config_.limits.pinned_bytes_per_session;
  return chosen != 0 ? chosen : backends_.CapacityBytes(device) / kPartOfCapacity;
}

}  // namespace arraybridge::daemon

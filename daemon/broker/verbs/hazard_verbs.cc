// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on reading without calls: catalogues, hazard pages, and looks through the pages.
#include <utility>

#include "daemon/broker/verbs/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

Status NoNamespace(std::string_view ns) {
  return NotFound("there is no namespace '", NamespaceNameOf(ns), "'").Because("NAMESPACE_NOT_FOUND");
}

}  // namespace

Result<UniqueFd> Broker::ExportCatalogue(SessionId session, std::string_view ns) {
  State& state = *state_;
  std::shared_ptr<Catalogue> catalogue;
  std::shared_ptr<Catalogue> fresh;  // destroyed after the lock is released, if another thread was first
  uint64_t number = 0;               // in the name of the stored file
  for (bool again = true;; again = false) {
    {
      const MutexLock lock(state.mutex);
      AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
      AB_ASSIGN_OR_RETURN(const auto key, state.rights.KeyOf(found->peer, ns, kReadWithoutCalls));
      Namespace* const owner = state.namespaces.Find(key);
      if (owner == nullptr) return NoNamespace(ns);
      if (owner->hazards.catalogue == nullptr) {
        AB_RETURN_IF_ERROR(state.accounts.CheckDescriptors(*found, 1, 1));
        AB_RETURN_IF_ERROR(state.journal.CheckRoom(ns.size()));
        if (fresh != nullptr) {
          ++state.accounts.Of(key.uid)->catalogues;
          owner->hazards.catalogue_record =
              state.journal.Add(record::kCatalogue, record::Page{.id = number, .ns_uid = key.uid, .ns = owner->name()});
        } else {
          number = state.journal.NextPage();
        }
        owner->hazards.catalogue = std::exchange(fresh, nullptr);
      }
      catalogue = owner->hazards.catalogue;
    }
    if (catalogue != nullptr) return catalogue->Export();
    AB_CHECK(again);
    const bool stored = state.journal.keeps();
    AB_ASSIGN_OR_RETURN(auto made, Catalogue::Create(state.config.limits.catalogue_shares(), state.broker_id, stored));
    const int file = made->file();
    auto kept = state.journal.Store(StoredName(kStoredCatalogue, number), {&file, 1});
    if (!kept.ok()) return kept.status();
    made->stored = *std::move(kept);
    fresh = std::move(made);
    static_cast<void>(Failpoint("catalogue_stored"));
  }
}

// A session has one page per namespace, however often it asks.
Result<UniqueFd> Broker::ExportHazardPage(SessionId session, std::string_view ns) {
  State& state = *state_;
  std::shared_ptr<HazardPage> page;
  std::shared_ptr<HazardPage> fresh;  // destroyed after the lock is released, if another thread was first
  uint64_t number = 0;                // in the name of the stored file
  for (bool again = true;; again = false) {
    {
      const MutexLock lock(state.mutex);
      AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
      AB_ASSIGN_OR_RETURN(const auto key, state.rights.KeyOf(found->peer, ns, kReadWithoutCalls));
      Namespace* const owner = state.namespaces.Find(key);
      if (owner == nullptr || owner->hazards.catalogue == nullptr) return NoNamespace(ns);
      page = owner->hazards.PageOf(*found);
      if (page == nullptr) AB_RETURN_IF_ERROR(state.hazards.CheckPage(*found));
      if (page == nullptr && fresh != nullptr) {
        AB_RETURN_IF_ERROR(state.journal.CheckRoom(ns.size()));
        page = std::exchange(fresh, nullptr);
        const record::Page its{.id = number, .session = Number(session), .ns_uid = key.uid, .ns = owner->name()};
        state.hazards.AddPage(*owner, *found, page, state.journal.Add(record::kHazardPage, its));
      }
      if (page == nullptr) number = state.journal.NextPage();
    }
    if (page != nullptr) return page->Export();
    AB_CHECK(again);
    AB_ASSIGN_OR_RETURN(auto made, HazardPage::Create());
    AB_ASSIGN_OR_RETURN(const auto readable, made->ExportForNextDaemon());
    const int file = readable.get();
    auto kept = state.journal.Store(StoredName(kStoredHazardPage, number), {&file, 1});
    if (!kept.ok()) return kept.status();
    made->stored = *std::move(kept);
    fresh = std::move(made);
    static_cast<void>(Failpoint("hazard_page_stored"));
  }
}

Status Broker::HazardPageMapped(SessionId session, std::string_view ns) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto key, state.rights.KeyOf(found->peer, ns, kReadWithoutCalls));
  const Namespace* const owner = state.namespaces.Find(key);
  const std::shared_ptr<HazardPage> page = owner == nullptr ? nullptr : owner->hazards.PageOf(*found);
  if (page == nullptr) return NoNamespace(ns);
  if (page->sealed()) return Ok();
  AB_RETURN_IF_ERROR(page->Seal());
  --found->account->unmapped_hazard_pages;
  return Ok();
}

bool Broker::hazards_waiting() const { return state_->flags.hazards_waiting.load(std::memory_order_relaxed); }

Broker::Looked Broker::PollHazards() {
  {
    const MutexLock lock(state_->mutex);
    state_->hazards.WantLooks();
  }
  return LookOn();
}

Broker::Looked Broker::LookOn() {
  State& state = *state_;
  Looked looked;
  const MutexLock lock(state.mutex);
  looked.freed = state.shares.LookFor(kLookNs);
  looked.over_limit = state.hazards.TakeOverLimit();
  looked.more = state.hazards.wants_look();
  return looked;
}

bool Broker::HazardCleared(SessionId session) {
  State& state = *state_;
  if (!hazards_waiting()) return false;
  const MutexLock lock(state.mutex);
  const Session* const found = state.sessions.Find(session);
  bool any = false;
  for (Namespace* const ns : found == nullptr ? std::vector<Namespace*>{} : found->hazard_pages_in) {
    if (!ns->hazards.waits()) continue;
    state.hazards.WantLook(*ns);
    any = true;
  }
  return any;
}

}  // namespace arraybridge::daemon

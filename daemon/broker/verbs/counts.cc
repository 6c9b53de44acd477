// SPDX-License-Identifier: Apache-2.0
// Counts of the broker, for statistics.
#include <utility>

#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

std::vector<DeviceFacts> Broker::Devices() const {
  std::vector<DeviceFacts> facts = state_->backends.Facts();
  const MutexLock lock(state_->mutex);
  for (const auto& arena : state_->arenas.dying()) {
    FactsOf(arena->device(), facts).quarantined_bytes += arena->footprint();
  }
  return facts;
}

Snapshot Broker::TakeSnapshot() const {
  const State& state = *state_;
  Snapshot snapshot;
  std::vector<std::shared_ptr<HazardPage>> pages;
  state.Count(&snapshot, &pages);
  // One page per session and namespace; counting needs no lock.
  for (const auto& page : pages) snapshot.hazard_slots += page->count();
  return snapshot;
}

void Broker::State::Count(Snapshot* counted, std::vector<std::shared_ptr<HazardPage>>* pages) const {
  Snapshot& snapshot = *counted;
  const MutexLock lock(mutex);
  snapshot.sessions = sessions.all().size();
  snapshot.leases = leases.size();
  for (const auto& [key, ns] : namespaces.all()) {
    snapshot.shares += ns->named();
    snapshot.withdrawn_shares += ns->shares().size() - ns->named();
    snapshot.channels += ns->channels.size();
    snapshot.queued_shares += ns->queued_shares;
    snapshot.charged_bytes += ns->quota().used();
    snapshot.pinned_bytes += ns->hazards.pinned_bytes();
    for (const NamespaceHazards::Page& page : ns->hazards.pages()) pages->push_back(page.page);
  }
  snapshot.withdrawn_shares -= snapshot.queued_shares;
  snapshot.queued_shares += direct_channels.standing();
  for (const auto& [id, session] : sessions.all()) snapshot.tickets += session->tickets.size();
  snapshot.arenas = arenas.size();
  snapshot.dying_arenas = arenas.dying_count();
  snapshot.sessions_total = sessions.total();
  snapshot.unread_shares = shares.unread;
  snapshot.expiring_shares = shares.expiring();
  snapshot.channel_totals = channels.totals();
  snapshot.publishes_total = shares.publishes_total;
  snapshot.forwards_total = forwards.total;
  snapshot.acquires_total = shares.acquires_total;
  snapshot.withdrawals_total = shares.withdrawals_total;
  snapshot.tickets_redeemed_total = sessions.tickets.redeemed;
  snapshot.tickets_expired_total = sessions.tickets.expired;
  snapshot.tickets_refused_total = sessions.tickets.refused;
  snapshot.pending_fences = leases.pending_fences();
  snapshot.lost_fences_total = leases.lost_fences_total();
  snapshot.watchers = events.watchers();
  snapshot.events_dropped_total = events.dropped_total();
  snapshot.flows = arenas.flows.rows();
}

}  // namespace arraybridge::daemon

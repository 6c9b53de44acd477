// SPDX-License-Identifier: Apache-2.0
// The shares that may leave memory, or that files are to keep.
#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/broker/tables/tiers/disk_arena.h"
#include "daemon/broker/verbs/state.h"
#include "daemon/broker/verbs/tiers/tiers.h"

namespace arraybridge::daemon {
namespace {

// Reads without a call leave no trace.
Clock::time_point LastRead(const Share& share) {
  if (share.history == nullptr || share.history->readers().empty()) return share.born;
  const std::chrono::nanoseconds last(share.history->readers().back().last_ns);
  const auto ago = std::chrono::system_clock::now().time_since_epoch() - last;
  return std::max(share.born, Clock::now() - std::chrono::duration_cast<Clock::duration>(ago));
}

// `of`: a namespace, or without a name all those of its owner.
bool IsIn(const Namespace& ns, const NamespaceKey& of) {
  return ns.uid() == of.uid && (of.name.empty() || ns.name() == of.name);
}

bool MayMove(const Share& share) { return !share.withdrawn && !share.arena->is_on_disk() && CheckMovable(share).ok(); }

}  // namespace

std::vector<Tiers::Candidate> Tiers::Candidates(const NamespaceKey& of, std::optional<SharePlace>* after) const {
  const Broker::State& state = *broker_.state_;
  std::vector<Candidate> found;
  const std::optional<SharePlace> from = std::exchange(*after, std::nullopt);
  int visits = 0;
  const MutexLock lock(state.mutex);
  const auto& all = state.namespaces.all();
  for (auto at = all.lower_bound(from ? NamespaceKey{from->owner, from->ns} : of); at != all.end(); ++at) {
    const Namespace& ns = *at->second;
    if (!IsIn(ns, of)) break;
    const bool goes_on = from && ns.name() == from->ns;
    const auto first = goes_on ? ns.shares().upper_bound(from->share) : ns.shares().begin();
    for (auto next = first; next != ns.shares().end(); ++next) {
      if (visits++ == kSharesMax) return found;
      *after = SharePlace{ns.uid(), ns.name(), next->first};
      if (MayMove(*next->second)) {
        found.push_back({next->second->rank, LastRead(*next->second), next->second->size, **after});
      }
    }
  }
  after->reset();
  return found;
}

std::vector<uint32_t> Tiers::Owners() const {
  const Broker::State& state = *broker_.state_;
  std::vector<uint32_t> owners;
  const MutexLock lock(state.mutex);
  for (const auto& [key, ns] : state.namespaces.all()) {
    if (owners.empty() || owners.back() != key.uid) owners.push_back(key.uid);
  }
  return owners;
}

std::vector<Tiers::NamespacePlace> Tiers::Named(const std::vector<std::string>& names) const {
  const Broker::State& state = *broker_.state_;
  std::vector<NamespacePlace> found;
  const MutexLock lock(state.mutex);
  for (const auto& [key, ns] : state.namespaces.all()) {
    if (std::ranges::find(names, key.name) != names.end()) found.emplace_back(key.uid, key.name);
  }
  return found;
}

std::vector<SharePlace> Tiers::NotDurable(const NamespaceKey& of, ShareId after, bool* is_all) const {
  const Broker::State& state = *broker_.state_;
  std::vector<SharePlace> found;
  *is_all = true;
  int visits = 0;
  const MutexLock lock(state.mutex);
  const Namespace* const ns = state.namespaces.Find(of);
  if (ns == nullptr) return found;
  for (auto at = ns->shares().upper_bound(after); at != ns->shares().end(); ++at) {
    if (visits++ == kSharesMax) return *is_all = false, found;
    const Share& share = *at->second;
    if (!share.fence.done()) return found;
    const bool is_durable = share.stored != nullptr && share.stored->durable;
    if (share.withdrawn || is_durable || CheckMovable(share).reason() == "NOT_MOVABLE") continue;
    found.push_back({ns->uid(), ns->name(), at->first});
  }
  return found;
}

}  // namespace arraybridge::daemon

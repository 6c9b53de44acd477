// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/shares.h"

#include <algorithm>
#include <string>

#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/tables/forwards.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

constexpr std::chrono::milliseconds kLifetimeMax = std::chrono::hours(24 * 365 * 100);  // the most that a clock can add

}  // namespace

Share* FindShare(const Namespace* ns, const ShareKey& key) {
  if (ns == nullptr) return nullptr;
  Share* const share = key.id == ShareId{} ? ns->FindByName(key.name) : ns->FindById(key.id);
  if (share == nullptr) return nullptr;
  const uint64_t generation = share->facts->generation;
  const bool stale = (key.generation != 0 && key.generation != generation) || generation <= key.newer_than;
  return stale && !Failpoint("share_generation") ? nullptr : share;
}

Status NoShare(std::string_view ns, const ShareKey& key, const Limits& limits) {
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", NamespaceNameOf(ns), limits.name_bytes_max));
  const bool by_id = key.id != ShareId{};
  if (!by_id) AB_RETURN_IF_ERROR(CheckName("the share's name", key.name, limits.name_bytes_max));
  std::string what = by_id ? Concat(Number(key.id)) : Concat("named '", key.name, "'");
  if (key.generation != 0) what += Concat(" of generation ", key.generation);
  if (key.newer_than != 0) what += Concat(" that is newer than generation ", key.newer_than);
  Status missing = NotFound("namespace '", NamespaceNameOf(ns), "' has no share ", what)
                       .Because(by_id ? "SHARE_GONE" : "SHARE_NOT_FOUND");
  return by_id ? missing : std::move(missing).With("share", std::string(key.name));
}

Shares::Shares(const Config& config, const Rights& rights, Events& events, Accounts& accounts, Hazards& hazards,
               Arenas& arenas, Flags& flags, Journal& journal)
    : config_(config),
      rights_(rights),
      events_(events),
      accounts_(accounts),
      hazards_(hazards),
      arenas_(arenas),
      flags_(flags),
      journal_(journal) {}

void Shares::SetLifetime(Share& share, std::chrono::milliseconds requested) const {
  const auto most = rights_.PolicyOf(share.ns->name()).share_lifetime;
  const auto lifetime = requested.count() == 0 || (most.count() != 0 && most < requested) ? most : requested;
  if (lifetime.count() != 0) share.expires = share.born + std::min(lifetime, kLifetimeMax);
}

bool Shares::Limit(Share& share) {
  if (!share.expires) return false;
  const auto its = expiring_.emplace(*share.expires, &share).first;
  return its == expiring_.begin();
}

void Shares::NoteRead(Share& share) {
  if (std::exchange(share.unread, false)) --unread;
}

void Shares::TakeName(Share& share) {
  NoteRead(share);
  if (share.expires.has_value()) expiring_.erase({*std::exchange(share.expires, std::nullopt), &share});
  if (share.withdrawn) return;
  share.unnoted = true;
  share.ns->TakeName(share);
  for (const Share::Reader& reader : share.readers) Accounts::Withdraw(*reader.account, share);
}

void Shares::Note(Share& share) {
  if (std::exchange(share.unnoted, false)) journal_.Put(share);
}

void Shares::Withdraw(Share& share, const Session* who, std::string_view why) {
  if (!share.withdrawn) {
    events_.Emit(EventKind::kWithdraw, who, share, why);
    ++withdrawals_total;
  }
  const FreeCause before = arenas_.because;
  if (before == FreeCause::kRelease) arenas_.because = FreeCause::kWithdraw;
  TakeName(share);
  static_cast<void>(Failpoint("name_taken"));
  share.ns->hazards.Retire(share);
  static_cast<void>(Failpoint("share_retired"));
  Settle(share);
  arenas_.because = before;
}

Result<uint32_t> Shares::Withdraw(const Namespace* ns, std::string_view name, std::span<const ShareKey> keys,
                                  const Session* who) {
  const ShareKey* missing = nullptr;
  uint32_t withdrawn = 0;
  for (const ShareKey& key : keys) {
    if (Share* const share = FindShare(ns, key); share != nullptr) {
      Withdraw(*share, who, who == nullptr ? "administration" : "withdrawn");
      ++withdrawn;
    } else if (missing == nullptr) {
      missing = &key;
    }
  }
  if (missing != nullptr) return NoShare(name, *missing, config_.limits);
  return withdrawn;
}

void Shares::Lose(Share& share, const Session* maker) {
  if (share.withdrawn) return;
  events_.Emit(EventKind::kWithdraw, maker, share, "lost");
  ++withdrawals_total;
  TakeName(share);
}

void Shares::Settle(Share& share) {
  if (IsLetGo(share) && share.ns->hazards.IsKnownUnheld(share)) return Reuse(share);
  if (IsLetGo(share)) hazards_.Await(share);
  Note(share);
}

// A root may be let go with its last forward. While it has its range, its arena is not idle.
void Shares::Reuse(Share& share) {
  hazards_.Unwait(share);
  share.ns->hazards.Free(share);
  Arena& arena = *share.arena;
  Share* root = nullptr;
  if (IsForward(share)) {
    root = Forwards::Remove(share);
  } else {
    ReturnRange(share);
  }
  if (share.orphan_until.has_value()) orphans_.erase({*share.orphan_until, &share});
  // The session may have ended and be cleared in slices.
  if (share.fenced_by != nullptr) share.fenced_by->fenced.erase(share.facts->id);
  Drop(share);
  if (root != nullptr) return Settle(*root);
  arenas_.RetireIfIdle(arena);
}

void Shares::ReturnRange(const Share& share) {
  Arena& arena = *share.arena;
  arena.Free(share.offset);
  // A client that never asks for returned ranges loses them until it gives the arena back. The number is bounded.
  if (arena.writer != nullptr && arena.writer->returned.size() < config_.limits.shares_per_namespace) {
    std::deque<RangeOfArena>& returned = arena.writer->returned;
    returned.push_back({arena.id(), share.offset, share.size});
    returned.back().record = journal_.Add(record::kReturned, RecordOf(returned.back(), arena.writer->id));
  }
}

void Shares::Drop(const Share& share) {
  Account& account = accounts_.At(share.maker_uid);
  --account.shares;
  account.description_bytes -= DescriptionBytes(share);
  const auto removed = share.ns->Remove(share);
  journal_.Erase(*removed);
}

void Shares::LeaveBehind(Share& share, const Session& maker) {
  if (share.withdrawn) return;
  const NamespacePolicy& policy = rights_.PolicyOf(share.ns->name());
  if (policy.withdraw_on_exit) return Withdraw(share, &maker, "publisher_exit");
  if (!share.facts->unnamed) return;
  share.orphan_until = maker.ended + policy.orphan_grace;
  journal_.Put(share);
  AwaitOrphan(share);
}

void Shares::AwaitOrphan(Share& share) {
  orphans_.emplace(*share.orphan_until, &share);
  flags_.sweep_wanted.store(true);
}

uint64_t Shares::LookFor(uint64_t cost_max_ns) {
  uint64_t freed = 0;
  for (uint64_t cost_ns = 0; cost_ns < cost_max_ns;) {
    const auto looked = hazards_.Look(cost_max_ns - cost_ns);
    if (!looked) break;
    cost_ns += std::max<uint64_t>(looked->cost_ns, 1);
    for (Share* const share : looked->unheld) freed += GoOnUnheld(*share) ? 1 : 0;
  }
  return freed;
}

// True: its bytes wait no longer.
bool Shares::GoOnUnheld(Share& share) {
  if (IsLetGo(share)) return Reuse(share), true;
  hazards_.Unwait(share);  // an orphan
  if (share.leases == 0) Withdraw(share, nullptr, "orphaned");
  return false;
}

// If a look costs little, it is made at once; otherwise the next look decides.
void Shares::WithdrawOrphans(Clock::time_point now, uint64_t* steps) {
  while (!orphans_.empty() && orphans_.begin()->first <= now && TakeStep(steps)) {
    Share& share = *orphans_.extract(orphans_.begin()).value().second;
    if (share.withdrawn || share.leases > 0) continue;
    if (share.ns->hazards.IsKnownUnheld(share)) {
      Withdraw(share, nullptr, "orphaned");
    } else {
      hazards_.Await(share);
    }
  }
}

void Shares::WithdrawExpired(Clock::time_point now, uint64_t* steps) {
  while (!expiring_.empty() && expiring_.begin()->first <= now && TakeStep(steps)) {
    Withdraw(*expiring_.begin()->second, nullptr, "expired");
  }
}

std::optional<Clock::time_point> Shares::NextDue() const {
  std::optional<Clock::time_point> next;
  if (!expiring_.empty()) next = expiring_.begin()->first;
  if (!orphans_.empty()) next = next ? std::min(*next, orphans_.begin()->first) : orphans_.begin()->first;
  return next;
}

}  // namespace arraybridge::daemon

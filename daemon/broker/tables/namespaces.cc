// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/namespaces.h"

#include <algorithm>
#include <iterator>

#include "daemon/at_limit.h"

namespace arraybridge::daemon {

Namespaces::Namespaces(const Config& config, const Backends& backends, const Rights& rights, Accounts& accounts,
                       Hazards& hazards, Flags& flags, Journal& journal)
    : config_(config),
      backends_(backends),
      rights_(rights),
      accounts_(accounts),
      hazards_(hazards),
      flags_(flags),
      journal_(journal) {}

Namespace* Namespaces::Find(const NamespaceKey& key) const {
  const auto found = all_.find(key);
  return found == all_.end() ? nullptr : found->second.get();
}

// The operator configures the number of shared namespaces, and users' own namespaces cannot take their place.
Status Namespaces::CheckRoom(const NamespaceKey& key, uint32_t maker_uid) const {
  const Limits& limits = config_.limits;
  if (key.uid == kSharedByUsers) return Ok();
  const auto first = all_.lower_bound({maker_uid, {}});
  const auto last = std::find_if(first, all_.end(), [&](const auto& each) { return each.first.uid != maker_uid; });
  const auto own = static_cast<uint64_t>(std::distance(first, last));
  if (own >= limits.namespaces_per_uid()) {
    return ByLimit(ResourceExhausted("user ", maker_uid, " has ", own, " namespaces, its part of limits.namespaces (",
                                     limits.namespaces, "): use one of them"),
                   "TOO_MANY_NAMESPACES", "namespaces", limits.namespaces);
  }
  const auto shared = static_cast<uint64_t>(std::distance(all_.lower_bound({kSharedByUsers, {}}), all_.end()));
  return CheckSharedLimit({"TOO_MANY_NAMESPACES", "namespaces", limits.namespaces, all_.size() - shared}, maker_uid,
                          own);
}

Result<Namespace*> Namespaces::FindOrMake(const NamespaceKey& key, uint32_t maker_uid) {
  if (Namespace* const found = Find(key); found != nullptr) return found;
  DropUnused();
  if (!dropped_.empty()) flags_.sweep_wanted.store(true);  // a sweep destroys them
  AB_RETURN_IF_ERROR(CheckRoom(key, maker_uid));
  auto fresh = std::make_unique<Namespace>(key.uid, std::string(key.name), QuotaBytes(key));
  // A shared namespace has its own budget, because its users have none in common.
  const bool shared = key.uid == kSharedByUsers;
  fresh->hazards.budget = shared ? std::make_shared<LookBudget>() : accounts_.Of(key.uid)->looks;
  const NamespaceKey its{fresh->uid(), fresh->name()};
  return all_.emplace(its, std::move(fresh)).first->second.get();
}

void Namespaces::DropUnused() {
  for (auto next = all_.begin(); next != all_.end();) {
    if (!next->second->unused()) {
      ++next;
      continue;
    }
    hazards_.DropPages(*next->second);
    dropped_.push_back(std::move(next->second));
    next = all_.erase(next);  // its key views the name of a dropped namespace
  }
}

Result<NamespaceKey> Namespaces::MeantBy(const NamespaceOf& of) const {
  const std::string_view name = NamespaceNameOf(of.ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", name, config_.limits.name_bytes_max));
  if (rights_.PolicyOf(name).shared()) {
    if (!of.uid || *of.uid == kSharedByUsers) return NamespaceKey{kSharedByUsers, name};
    return InvalidArgument("namespace '", name, "' is shared: name it without a user");
  }
  if (of.uid && *of.uid != kSharedByUsers) return NamespaceKey{*of.uid, name};
  return InvalidArgument("every user has a namespace '", name, "': name its owner, too (arraybridgectl: --uid UID)");
}

NamespaceQuota Namespaces::QuotaAt(const NamespaceKey& key) const {
  const Namespace* const found = Find(key);
  return {QuotaBytes(key), found == nullptr ? 0 : found->quota().used(),
          set_quotas_.contains({key.uid, std::string(key.name)})};
}

Result<NamespaceQuota> Namespaces::SetQuota(const NamespaceKey& key, std::optional<uint64_t> bytes) {
  const std::pair its{key.uid, std::string(key.name)};
  if (bytes && !set_quotas_.contains(its) && set_quotas_.size() >= config_.limits.namespaces) {
    return AtLimit("TOO_MANY_NAMESPACES", "namespaces", config_.limits.namespaces);
  }
  if (bytes) AB_RETURN_IF_ERROR(journal_.CheckRoom(key.name.size()));
  if (const auto before = set_quotas_.extract(its); !before.empty()) journal_.Erase(before.mapped().record);
  const record::Quota quota{.bytes = bytes.value_or(0), .ns_uid = key.uid, .ns = key.name};
  if (bytes) set_quotas_[its] = {*bytes, journal_.Add(record::kQuota, quota)};
  if (Namespace* const found = Find(key); found != nullptr) found->ChangeQuota(QuotaBytes(key));
  return QuotaAt(key);
}

uint64_t Namespaces::QuotaBytes(const NamespaceKey& key) const {
  if (!set_quotas_.empty()) {
    const auto found = set_quotas_.find({key.uid, std::string(key.name)});
    if (found != set_quotas_.end()) return found->second.bytes;
  }
  const uint64_t configured = rights_.PolicyOf(key.name).quota_bytes;
  return configured != 0 ? configured : backends_.CapacityBytes();
}

void Namespaces::AdoptQuotas() {
  for (const auto& [key, ns] : all_) ns->ChangeQuota(QuotaBytes(key));
}

}  // namespace arraybridge::daemon

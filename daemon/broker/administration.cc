// The Broker's verbs for who operates it: they ask for nobody's right, the door has.
#include <algorithm>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {

Result<NamespaceKey> Broker::State::MeantBy(const NamespaceOf& of) const {
  const std::string_view name = NamespaceNameOf(of.ns);
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", name, config.limits.name_bytes_max));
  if (PolicyOf(name).shared()) {
    if (!of.uid || *of.uid == kSharedByUsers) return NamespaceKey{kSharedByUsers, name};
    return InvalidArgument("namespace '", name, "' is shared by its users: it is no single one's");
  }
  if (of.uid && *of.uid != kSharedByUsers) return NamespaceKey{*of.uid, name};
  return InvalidArgument("every user has a namespace '", name, "' to himself: say whose is meant");
}

NamespaceQuota Broker::State::QuotaAt(const NamespaceKey& key) const {
  const Namespace* const found = FindNamespace(key);
  return {quota_bytes(key), found == nullptr ? 0 : found->quota().used(),
          set_quotas.contains({key.uid, std::string(key.name)})};
}

Result<NamespaceQuota> Broker::QuotaOf(const NamespaceOf& of) const {
  const MutexLock lock(state_->mutex);
  const auto key = state_->MeantBy(of);
  if (!key.ok()) return key.status();
  return state_->QuotaAt(*key);
}

Result<NamespaceQuota> Broker::SetQuota(const NamespaceOf& of, std::optional<uint64_t> bytes) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const auto key = state.MeantBy(of);
  if (!key.ok()) return key.status();
  const std::pair its{key->uid, std::string(key->name)};
  if (bytes && !state.set_quotas.contains(its) && state.set_quotas.size() >= state.config.limits.namespaces) {
    return AtLimit("TOO_MANY_NAMESPACES", "namespaces", state.config.limits.namespaces);
  }
  if (bytes) state.set_quotas[its] = *bytes;
  if (!bytes) state.set_quotas.erase(its);
  if (Namespace* const found = state.FindNamespace(*key); found != nullptr) found->ChangeQuota(state.quota_bytes(*key));
  return state.QuotaAt(*key);
}

Result<uint32_t> Broker::Withdraw(const NamespaceOf& of, std::span<const ShareKey> keys) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const auto key = state.MeantBy(of);
  if (!key.ok()) return key.status();
  state.because = FreeCause::kAdmin;
  const auto withdrawn = state.WithdrawFrom(*key, keys, nullptr);
  state.because = FreeCause::kRelease;
  return withdrawn;
}

Result<uint64_t> Broker::Trim(const std::optional<Device>& only) {
  uint64_t freed = 0;
  bool served = !only.has_value();
  for (MemoryBackend* const backend : state_->backends) {
    const auto devices = backend->devices();
    if (only && std::ranges::find(devices, *only) == devices.end()) continue;
    served = true;
    freed += backend->Trim();
  }
  if (!served) return NotFound("no such device is served here").Because("NO_SUCH_DEVICE");
  return freed;
}

}  // namespace arraybridge

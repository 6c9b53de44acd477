// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs for an operator. The door has checked the right of the caller.
#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

Result<NamespaceQuota> Broker::QuotaOf(const NamespaceOf& of) const {
  const MutexLock lock(state_->mutex);
  AB_ASSIGN_OR_RETURN(const auto key, state_->namespaces.MeantBy(of));
  return state_->namespaces.QuotaAt(key);
}

Result<NamespaceQuota> Broker::SetQuota(const NamespaceOf& of, std::optional<uint64_t> bytes) {
  const MutexLock lock(state_->mutex);
  AB_ASSIGN_OR_RETURN(const auto key, state_->namespaces.MeantBy(of));
  return state_->namespaces.SetQuota(key, bytes);
}

Result<uint32_t> Broker::Withdraw(const NamespaceOf& of, std::span<const ShareKey> keys) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const auto key, state.namespaces.MeantBy(of));
  state.arenas.because = FreeCause::kAdmin;
  auto withdrawn = state.shares.Withdraw(state.namespaces.Find(key), key.name, keys, nullptr);
  state.arenas.because = FreeCause::kRelease;
  return withdrawn;
}

Result<uint64_t> Broker::Trim(const std::optional<Device>& only) { return state_->backends.Trim(only); }

}  // namespace arraybridge::daemon

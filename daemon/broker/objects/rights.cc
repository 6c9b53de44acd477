// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/rights.h"

#include <algorithm>
#include <string>

namespace arraybridge::daemon {
namespace {

// The same text whether the namespace exists or not.
Status Denied(const Peer& peer, std::string_view ns, Right has) {
  const std::string_view may = has == Right::kRead ? " may only read namespace '" : " may not use namespace '";
  return PermissionDenied(peer.who(), !peer.token.empty() ? ", with its token," : "", may, ns, "'")
      .Because(has == Right::kRead ? "NAMESPACE_READ_ONLY" : "NAMESPACE_DENIED")
      .With("namespace", std::string(ns))
      .With("uid", std::to_string(peer.uid));
}

}  // namespace

void Rights::Adopt() {
  policies_ = config_.namespaces;
  default_policy_ = {
      config_.namespace_quota_bytes, config_.share_lifetime, config_.orphan_grace, config_.withdraw_on_exit, {}};
}

const NamespacePolicy& Rights::PolicyOf(std::string_view name) const {
  const auto found = policies_.find(name);
  return found == policies_.end() ? default_policy_ : found->second;
}

Rights::Place Rights::PlaceOf(const Peer& peer, std::string_view name) const {
  const auto found = policies_.find(name);
  if (found != policies_.end() && found->second.shared()) {
    return {kSharedByUsers, RightOf(found->second.access, peer.credentials())};
  }
  const bool listed = found != policies_.end() || name == kDefaultNamespace;
  return {peer.uid, listed || config_.unlisted_namespaces ? Right::kWrite : Right::kNone};
}

Result<NamespaceKey> Rights::KeyOf(const Peer& peer, std::string_view ns, Right right) const {
  const std::string_view name = NamespaceNameOf(ns);
  const Place place = PlaceOf(peer, name);
  if (place.right >= right) return NamespaceKey{place.owner, name};
  // checked because a refusal echoes the name
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", name, config_.limits.name_bytes_max));
  return Denied(peer, name, place.right);
}

bool Rights::MayList(const Peer& peer, const NamespaceKey& key) const {
  if (key.uid != kSharedByUsers) return key.uid == peer.uid;
  const Place place = PlaceOf(peer, key.name);
  return place.owner == key.uid && place.right >= Right::kRead;
}

bool Rights::MayUse(const Peer& peer, const NamespaceKey& key, Right right) const {
  const Place place = PlaceOf(peer, key.name);
  return place.owner == key.uid && place.right >= right;
}

bool Rights::IsStranded(const NamespaceKey& key) const {
  const auto found = policies_.find(key.name);
  const bool shared = found != policies_.end() && found->second.shared();
  return shared != (key.uid == kSharedByUsers);
}

}  // namespace arraybridge::daemon

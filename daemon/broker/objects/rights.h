// SPDX-License-Identifier: Apache-2.0
// Rights map a name to a namespace, a right and a policy for each peer, as the operator configured them.
#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/peer.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Not thread-safe: the broker's lock guards it.
class Rights {
 public:
  explicit Rights(const Config& config) : config_(config) { Adopt(); }

  // Reads the configured namespaces again. Limits are read at each use.
  void Adopt();

  const NamespacePolicy& PolicyOf(std::string_view name) const;
  const NamespacePolicies& policies() const { return policies_; }

  struct Place {
    uint32_t owner = 0;
    Right right = Right::kNone;
  };
  Place PlaceOf(const Peer& peer, std::string_view name) const;
  // PERMISSION_DENIED, the same whether the namespace exists or not. The key views `ns`.
  Result<NamespaceKey> KeyOf(const Peer& peer, std::string_view ns, Right right) const;
  bool MayList(const Peer& peer, const NamespaceKey& key) const;
  bool MayUse(const Peer& peer, const NamespaceKey& key, Right right) const;
  // No peer can name the namespace any more: it was a user's own and its name is shared now, or the reverse.
  bool IsStranded(const NamespaceKey& key) const;

 private:
  const Config& config_;
  NamespacePolicies policies_;
  NamespacePolicy default_policy_;
};

}  // namespace arraybridge::daemon

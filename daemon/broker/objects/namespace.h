// SPDX-License-Identifier: Apache-2.0
// A Namespace owns names and pays for memory. It belongs to one user, and no other user can see or guess that it
// exists; or it is shared by the users on the operator's access list. It exists exactly as long as it has shares,
// channels or claims, or pays for memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/broker/ledger/charge.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/channel.h"
#include "daemon/broker/objects/claim.h"
#include "daemon/broker/objects/direct_channel_record.h"
#include "daemon/broker/objects/namespace_hazards.h"
#include "daemon/broker/objects/share.h"
#include "daemon/broker/objects/share_uses.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// 1..bytes_max bytes of UTF-8 without control characters. `what` is the noun in the message; the text is not echoed.
Status CheckName(std::string_view what, std::string_view text, uint64_t bytes_max);

// The hash of a name is keyed with a secret of this process; otherwise a client could choose names that collide.
struct SecretHash {
  size_t operator()(std::string_view text) const;
};

class Namespace {
 public:
  Namespace(uint32_t uid, std::string name, uint64_t quota_bytes)
      : uid_(uid), name_(std::move(name)), quota_(std::make_shared<Quota>(quota_bytes)) {}

  // The owner; kSharedByUsers.
  uint32_t uid() const { return uid_; }
  const std::string& name() const { return name_; }
  const Quota& quota() const { return *quota_; }
  void ChangeQuota(uint64_t bytes) { quota_->Change(bytes); }
  // RESOURCE_EXHAUSTED, reason QUOTA_EXCEEDED. `payer`: the user who has the bytes.
  Result<Charge> ChargeFor(uint64_t bytes, std::shared_ptr<Quota> payer = nullptr);
  // Of bytes that are in use already.
  Charge ChargeAgain(uint64_t bytes, std::shared_ptr<Quota> payer) {
    return Charge::Again(quota_, bytes, std::move(payer));
  }
  bool unused() const { return shares_.empty() && channels.empty() && claims.empty() && quota_->used() == 0; }

  // Null if no share has that name, or no share with that id has a name.
  Share* FindByName(std::string_view name) const;
  Share* FindById(ShareId id) const;
  Claim* FindClaim(std::string_view name) const {
    const auto found = claims.find(name);
    return found == claims.end() ? nullptr : found->second.get();
  }

  // Adds the share and its name, unless the share was withdrawn before. REQUIRES: the name is free.
  Share* Add(std::unique_ptr<Share> share);
  // As Add. Null: another share has the name, and `share` stays the caller's.
  Share* TryAdd(std::unique_ptr<Share>& share);
  void ReserveNames(size_t count) { by_name_.reserve(count); }
  // The share keeps everything but its name.
  void TakeName(Share& share);
  // Removes the share and gives it to the caller. REQUIRES: withdrawn.
  std::unique_ptr<Share> Remove(const Share& share);

  size_t named() const { return by_name_.size(); }
  // The bytes of all shares, with and without a name. Bytes that several shares use count once.
  uint64_t share_bytes() const { return share_bytes_; }
  // With and without a name, by id.
  const std::map<ShareId, std::unique_ptr<Share>>& shares() const { return shares_; }

  // Reading of its shares without calls.
  NamespaceHazards hazards;
  uint64_t queued_shares = 0;  // in all channels, which refer to this number
  ShareUses uses;              // of share_bytes; the channels refer to it, too
  // Charged bytes of arenas whose session has ended. Their shares live on.
  uint64_t unowned_bytes = 0;
  // By name.
  std::map<std::string, std::unique_ptr<Channel>, std::less<>> channels;
  std::map<std::string_view, std::shared_ptr<Claim>> claims;  // keys are the claims' own names

 private:
  const uint32_t uid_;
  const std::string name_;
  const std::shared_ptr<Quota> quota_;
  uint64_t share_bytes_ = 0;
  std::map<ShareId, std::unique_ptr<Share>> shares_;
  std::unordered_map<std::string_view, Share*, SecretHash> by_name_;  // keys are the shares' own names
};

// Whether the bytes of a share may be reused once no session holds it. This is the only place that decides that. They
// may not while the maker's device may still write them: the next content, written on another stream, would be
// overwritten.
inline bool IsLetGo(const Share& share) {
  return share.withdrawn && share.leases == 0 && share.queued == 0 && share.forwards == 0 && share.fence.done();
}

// The order in which namespaces are found and listed: by owner, then by name. Shared namespaces come last.
struct NamespaceKey {
  uint32_t uid = 0;
  std::string_view name;
  friend auto operator<=>(const NamespaceKey&, const NamespaceKey&) = default;  // NOLINT(modernize-use-nullptr): its 0
};

}  // namespace arraybridge::daemon

// A Namespace owns names and pays for memory. It is one user's own, and no other user can see, or guess, that it
// exists; or, where the operator says who may use it, all of these users share it. It is there exactly as long as it
// has shares or channels or pays for something.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/broker/channel.h"
#include "daemon/broker/charge.h"
#include "daemon/broker/direct_channel_record.h"
#include "daemon/broker/holding.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/share.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// 1..bytes_max bytes of UTF-8 without control characters. `what` is the noun in the message; the text is not echoed.
Status CheckName(std::string_view what, std::string_view text, uint64_t bytes_max);

// What a name hashes to is a secret of this process, or a client could choose names that all collide.
struct SecretHash {
  size_t operator()(std::string_view text) const;
};

class Namespace {
 public:
  Namespace(uint32_t uid, std::string name, uint64_t quota_bytes)
      : uid_(uid), name_(std::move(name)), quota_(std::make_shared<Quota>(quota_bytes)) {}

  // Whose it is; kSharedByUsers.
  uint32_t uid() const { return uid_; }
  const std::string& name() const { return name_; }
  const Quota& quota() const { return *quota_; }
  void ChangeQuota(uint64_t bytes) { quota_->Change(bytes); }
  // RESOURCE_EXHAUSTED, reason QUOTA_EXCEEDED. `payer`: the user who has the bytes.
  Result<Charge> ChargeFor(uint64_t bytes, std::shared_ptr<Quota> payer = nullptr);
  bool unused() const { return shares_.empty() && channels.empty() && quota_->used() == 0; }

  // Null if nothing has that name, or nothing with that id has a name any more.
  Share* FindByName(std::string_view name) const;
  Share* FindById(ShareId id) const;

  // The share is the namespace's and has its name, unless it was withdrawn before. REQUIRES: the name is free.
  Share* Add(std::unique_ptr<Share> share);
  // The share keeps everything but its name.
  void TakeName(Share& share);
  // The share is the caller's: gone from here. REQUIRES: withdrawn.
  std::unique_ptr<Share> Remove(const Share& share);

  size_t named() const { return by_name_.size(); }
  // Of all its shares, with and without a name.
  uint64_t share_bytes() const { return share_bytes_; }
  // With and without a name, by id.
  const std::map<ShareId, std::unique_ptr<Share>>& shares() const { return shares_; }

  // How its shares are read without calls.
  Holding holding;
  uint64_t queued_shares = 0;  // in all channels, which refer to it
  // By name.
  std::map<std::string, std::unique_ptr<Channel>, std::less<>> channels;

 private:
  const uint32_t uid_;
  const std::string name_;
  const std::shared_ptr<Quota> quota_;
  uint64_t share_bytes_ = 0;
  std::map<ShareId, std::unique_ptr<Share>> shares_;
  std::unordered_map<std::string_view, Share*, SecretHash> by_name_;  // keys are the shares' own names
};

// The one place that says whether the bytes of a share may be used for something else, once no session holds it. Not
// while its maker's device may still write them: what is written next, on another stream, would be overwritten.
inline bool IsLetGo(const Share& share) {
  return share.withdrawn && share.leases == 0 && share.queued == 0 && share.fence.done();
}

// How namespaces are found and listed: by owner, then by name. What users share comes last.
struct NamespaceKey {
  uint32_t uid = 0;
  std::string_view name;
  friend auto operator<=>(const NamespaceKey&, const NamespaceKey&) = default;  // NOLINT(modernize-use-nullptr): its 0
};

}  // namespace arraybridge

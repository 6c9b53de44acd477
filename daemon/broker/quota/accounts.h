// Accounts holds the Account of each user.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/broker/arenas/backends.h"
#include "daemon/broker/channels/direct_channel_table.h"
#include "daemon/broker/quota/account.h"
#include "daemon/broker/recovery/journal.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct Session;
struct Share;

// Not thread-safe: the broker's lock guards it.
class Accounts {
 public:
  // All arguments outlive the table.
  Accounts(const Config& config, const Backends& backends, const DirectChannelTable& direct_channels,
           const Journal& journal);

  // The user's account, made if there is none.
  const std::shared_ptr<Account>& Of(uint32_t uid);
  // REQUIRES: the user has an account.
  Account& At(uint32_t uid) const { return *accounts_.at(uid); }
  // RESOURCE_EXHAUSTED: the session's user would exceed limits.descriptors_per_uid with so many more descriptors, or
  // would have more of the store for the next daemon than it leaves to others.
  Status CheckDescriptors(const Session& session, uint64_t more) const;

  // The user leases the withdrawn share of another user; no more.
  void Pin(Account& account, Share& share);
  void Unpin(Account& account, Share& share);
  // RESOURCE_EXHAUSTED: the session's user keeps more of others' withdrawn bytes, where this share is, than it leaves
  // to others, or than limits.pinned_bytes_per_uid.
  Status CheckPinned(const Session& session, const Share& share) const;
  // Whether anything is counted for the user.
  bool InUse(uint32_t uid) const;
  void DropUnused();

 private:
  Status CheckStore(const Session& session, uint64_t more) const;

  const Config& config_;
  const Backends& backends_;
  const DirectChannelTable& direct_channels_;
  const Journal& journal_;
  const uint64_t descriptors_max_;
  std::unordered_map<uint32_t, std::shared_ptr<Account>> accounts_;
  std::vector<WithdrawnBytes> pinned_;  // by all users, each share once
};

}  // namespace arraybridge

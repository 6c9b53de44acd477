// Accounts holds the Account of each user.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "daemon/broker/channels/direct_channel_table.h"
#include "daemon/broker/quota/account.h"
#include "daemon/broker/recovery/journal.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct Session;

// Not thread-safe: the broker's lock guards it.
class Accounts {
 public:
  // All arguments outlive the table.
  Accounts(const Config& config, const DirectChannelTable& direct_channels, const Journal& journal);

  // The user's account, made if there is none.
  const std::shared_ptr<Account>& Of(uint32_t uid);
  // REQUIRES: the user has an account.
  Account& At(uint32_t uid) const { return *accounts_.at(uid); }
  // RESOURCE_EXHAUSTED: the session's user would exceed limits.descriptors_per_uid with so many more descriptors.
  Status CheckDescriptors(const Session& session, uint64_t more) const;
  // The same for entries in the store of descriptors, which has its own maximum.
  Status CheckEntries(const Session& session, uint64_t more) const;
  // Whether the session's user may have another arena in the store: a part of its entries is for sessions and pages.
  bool MayStoreArena(const Session& session) const;
  // Whether anything is counted for the user.
  bool InUse(uint32_t uid) const;
  void DropUnused();

 private:
  // Of the session's user in the store; and how many it may have, UINT64_MAX: any number.
  uint64_t EntriesOf(const Session& session) const;
  uint64_t EntriesMax() const;

  const Config& config_;
  const DirectChannelTable& direct_channels_;
  const Journal& journal_;
  const uint64_t descriptors_max_;
  std::unordered_map<uint32_t, std::shared_ptr<Account>> accounts_;
};

}  // namespace arraybridge

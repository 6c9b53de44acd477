// Accounts holds the Account of each user.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "daemon/broker/channels/direct_channel_table.h"
#include "daemon/broker/quota/account.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct Session;

// Not thread-safe: the broker's lock guards it.
class Accounts {
 public:
  // Both arguments outlive the table.
  Accounts(const Config& config, const DirectChannelTable& direct_channels);

  // The user's account, made if there is none.
  const std::shared_ptr<Account>& Of(uint32_t uid);
  // REQUIRES: the user has an account.
  Account& At(uint32_t uid) const { return *accounts_.at(uid); }
  // RESOURCE_EXHAUSTED: the session's user would exceed limits.descriptors_per_uid with so many more descriptors.
  Status CheckDescriptors(const Session& session, uint64_t more) const;
  // Whether anything is counted for the user.
  bool InUse(uint32_t uid) const;
  void DropUnused();

 private:
  const Config& config_;
  const DirectChannelTable& direct_channels_;
  const uint64_t descriptors_max_;
  std::unordered_map<uint32_t, std::shared_ptr<Account>> accounts_;
};

}  // namespace arraybridge

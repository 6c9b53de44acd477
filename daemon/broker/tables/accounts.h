// SPDX-License-Identifier: Apache-2.0
// Accounts holds the Account of each user.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "daemon/broker/ledger/account.h"
#include "daemon/broker/tables/backends.h"
#include "daemon/broker/tables/direct_channel_table.h"
#include "daemon/broker/tables/journal.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

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
  // RESOURCE_EXHAUSTED, with this reason: the session's user would exceed limits.object_bytes_per_uid with so many
  // bytes more than it has without `freed`.
  Status CheckObjects(const Session& session, std::string_view reason, uint64_t more, uint64_t freed = 0) const;
  // RESOURCE_EXHAUSTED: the session's user would exceed limits.descriptors_per_uid with so many more descriptors, or
  // with so many more entries in the store for the next daemon, of which it gets no more than it leaves to others.
  Status CheckDescriptors(const Session& session, uint64_t descriptors, uint64_t entries) const;
  // The same for the entry of one more session. A user's arenas do not count there.
  Status CheckSessionEntry(uint32_t uid) const;

  // The user has leased the share of another user, has given it back, or its name was taken.
  static void Lease(Account& account, const Share& share);
  static void GiveBack(Account& account, const Share& share);
  static void Withdraw(Account& account, const Share& share);
  // Whether the session, which may only read, may lease the share of another user beside `requested` bytes of the same
  // request. RESOURCE_EXHAUSTED: its user keeps shares that were withdrawn, and would have more than
  // limits.pinned_bytes_per_uid.
  Status CheckPinned(const Session& session, const Share& share, uint64_t requested) const;
  void DropUnused();

 private:
  // `leaves_sessions`: entries for sessions that may be opened yet, up to half of the store, are not counted as left.
  Status CheckStore(uint32_t uid, uint64_t own, uint64_t more, bool leaves_sessions) const;

  const Config& config_;
  const Backends& backends_;
  const DirectChannelTable& direct_channels_;
  const Journal& journal_;
  const uint64_t descriptors_max_;
  std::unordered_map<uint32_t, std::shared_ptr<Account>> accounts_;
};

}  // namespace arraybridge::daemon

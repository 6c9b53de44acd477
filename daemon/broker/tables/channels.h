// SPDX-License-Identifier: Apache-2.0
// Channels holds all channels by number, those without an end that wait for a receiver, and dropped queues.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "daemon/broker/ledger/counter.h"
#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/channel.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/rights.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/tables/journal.h"
#include "daemon/broker/tables/shares.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

Status ChannelNotOpen();

// Not thread-safe: the broker's lock guards it.
class Channels {
 public:
  // All arguments outlive the table.
  Channels(const Config& config, const Rights& rights, Shares& shares, Flags& flags, Journal& journal)
      : config_(config), rights_(rights), shares_(shares), flags_(flags), journal_(journal) {}

  Channel* Find(ChannelId id) const;                                   // null: it does not exist
  static Channel* FindIn(const Namespace& ns, std::string_view name);  // likewise
  // RESOURCE_EXHAUSTED: limits.channels_per_namespace.
  Result<Channel*> FindOrMake(Namespace& ns, std::string_view name);
  // Drops the shares that an earlier run left, if the call says so.
  ChannelEndId Open(Session& session, Channel& channel, const OpenChannelCall& call);
  // An open end of the session with this role. NOT_FOUND, CHANNEL_NOT_OPEN; FAILED_PRECONDITION, WRONG_END.
  static Result<ChannelEnd> EndOf(const Session& session, ChannelEndId id, ChannelRole role);
  // REQUIRES: the end was removed from the session. The channel may be destroyed.
  void Close(const Session& session, ChannelEndId id, const ChannelEnd& end, EndedHow how, Clock::time_point now);
  // As Channel::NoticeTo.
  Status NoticeTo(Channel& channel, ChannelEndId end, uint64_t seen);

  // Of the previous daemon. REQUIRES: there is no such channel.
  Channel& Restore(ChannelId id, Namespace& ns, std::string name);
  void RestoreEnd(Session& session, Channel::Member member, const ChannelEnd& end);
  // All has been restored: the channel may go now, or linger.
  void Settle(Channel& channel, Clock::time_point now);

  // Each call subtracts its steps from `steps`.
  void ClearQueues(uint64_t* steps);
  void DropLingering(Clock::time_point now, uint64_t* steps);
  bool has_lingering() const { return !lingering_.empty(); }

  // Ends what the broadcast keeps for no receiver. Call it after a share was sent or received, or an end was closed.
  void LetPass(Channel& channel) { Clear(channel.TakePassed()); }
  // Drops what is queued. The channel is destroyed if no end is open. Returns the number of shares.
  uint64_t Drain(Channel& channel);
  const ChannelTotals& totals() const { return totals_; }

  Counter ids;
  Counter end_ids;

 private:
  // These shares, which count as queued, are not queued any more.
  void Clear(std::deque<Share*> queue);
  void Drop(Channel& channel);
  void Linger(Channel& channel, Clock::time_point until);

  const Config& config_;
  const Rights& rights_;
  Shares& shares_;
  Flags& flags_;
  Journal& journal_;
  ChannelTotals totals_;
  std::unordered_map<ChannelId, Channel*> all_;
  // Channels without an open end that wait for a receiver, by the end of their wait.
  std::set<std::pair<Clock::time_point, Channel*>> lingering_;
  // Shares that no receiver waits for any more; they still count as queued.
  std::deque<std::deque<Share*>> unqueued_;
};

}  // namespace arraybridge::daemon

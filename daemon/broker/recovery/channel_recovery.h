// SPDX-License-Identifier: Apache-2.0
// ChannelRecovery restores channels with their ends, queues and notices, and direct channels. Recovery calls it between
// its own steps.
//
// Few records are written for each message, so most is derived. A share waits in its channel unless a lease has
// received it. An end counts the share or the lease that is newer than its record.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "daemon/broker/objects/recovered.h"
#include "daemon/broker/recovery/reading.h"
#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

class Broker::ChannelRecovery {
 public:
  // Both outlive it. Every method gets the same `state`.
  ChannelRecovery(Records& records, StoredFiles& files);

  // Whether the session has ends of channels, or of a direct channel. If its client is gone, the service ends it as any
  // other session that ends.
  bool Needs(uint64_t session) const { return sessions_.contains(session); }
  // After the sessions.
  void DirectChannels(State& state) AB_REQUIRES(state.mutex);
  void Channels(State& state) AB_REQUIRES(state.mutex);
  // Of an entry of a direct channel; never null.
  std::shared_ptr<KeptRanges> RangesOf(uint64_t direct_channel) const;
  // A share that was sent into a channel. Null: it is lost.
  void NoteSent(State& state, const record::Share& its, Share* share) AB_REQUIRES(state.mutex);
  // The lease of such a share. Null: its session is gone.
  void NoteReceived(State& state, Session* session, LeaseId lease, ChannelEndId receiver, Share& share)
      AB_REQUIRES(state.mutex);
  // After the shares and leases.
  void Finish(State& state, Recovered* recovered) AB_REQUIRES(state.mutex);
  void Settle(State& state, Clock::time_point now) AB_REQUIRES(state.mutex);

 private:
  void RestoreChannel(State& state, const Records::Entry& entry) AB_REQUIRES(state.mutex);
  void RestoreEnd(State& state, const Records::Entry& entry) AB_REQUIRES(state.mutex);
  void RestoreDirect(State& state, const Records::Entry& entry) AB_REQUIRES(state.mutex);
  void FillQueue(State& state, Channel& channel) AB_REQUIRES(state.mutex);
  // Whether both ends go on with it.
  bool Connect(State& state, const std::shared_ptr<DirectChannelRecord>& direct) AB_REQUIRES(state.mutex);

  Records& records_;
  StoredFiles& files_;
  std::set<uint64_t> sessions_;
  std::map<uint64_t, ChannelEnd*> ends_;                             // by id
  std::map<uint64_t, std::map<uint64_t, Share*>> waiting_;           // by channel and sequence
  std::map<uint64_t, std::shared_ptr<DirectChannelRecord>> direct_;  // by number
};

}  // namespace arraybridge::daemon

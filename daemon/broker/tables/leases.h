// SPDX-License-Identifier: Apache-2.0
// Leases holds all leases. A lease keeps a share's bytes unchanged until it ends. A share that was published with an
// event (a fence) is leased before the event only to sessions that can wait for the event themselves. The readers of
// each share are recorded; the share's maker pays for the record.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/history.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/tables/accounts.h"
#include "daemon/broker/tables/arenas.h"
#include "daemon/broker/tables/events.h"
#include "daemon/broker/tables/hazards.h"
#include "daemon/broker/tables/sessions.h"
#include "daemon/broker/tables/shares.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

Visitor VisitorOf(const Session& session);

// Not thread-safe: the broker's lock guards it.
class Leases {
 public:
  // All arguments outlive the table.
  Leases(const Config& config, Events& events, const Sessions& sessions, Accounts& accounts, Hazards& hazards,
         Arenas& arenas, Shares& shares, Journal& journal);

  // Whether the session may have so many more leases. RESOURCE_EXHAUSTED: Limits.leases_per_session,
  // limits.object_bytes_per_uid.
  Status CheckRoom(const Session& session, uint64_t more) const;
  // `request`: as in PublishCall.
  // `receiver`: the end of a channel that receives the share.
  LeasedShare Grant(Session& session, Share& share, uint64_t request = 0, ChannelEndId receiver = {});
  // False: the session has no such lease. The share may be destroyed.
  bool End(Session& session, LeaseId lease);
  // Ends the leases of an answer that failed.
  void Undo(Session& session, const std::vector<LeasedShare>& leased);
  // The lease of a session that the previous daemon served.
  void Restore(Session& session, Share& share, LeaseId id, Session::RecordedLease recorded);
  // The leases that this request got from the previous daemon.
  static std::vector<Received> Of(const Session& session, uint64_t request);
  uint64_t size() const { return count_; }

  // Whether the session can wait for the share's bytes. NOT_FOUND, FENCE_PENDING.
  Status CheckFence(const Session& session, const Share& share, bool final_only) const;
  // Gives the event to the session with this lease. REQUIRES: CheckFence says OK.
  static void PassFence(Session& session, Share& share, LeasedShare* leased);
  // A share was published with an event. Does nothing if its fence is done.
  void AddFence(Session& maker, Share& share);
  // The maker reports that the event happened, or never will. Adds to `ended` what the maker and others must learn.
  void EndFence(Session& maker, ShareId share, bool lost, EndedFences* ended);
  // The bytes will never be complete. The share may be destroyed.
  void LoseFence(Share& share);
  uint64_t pending_fences() const { return pending_fences_; }
  uint64_t lost_fences_total() const { return lost_fences_total_; }

  Counter ids;

  void NoteReader(const Session& session, Share& share, std::string_view note);
  // Replaces the note of a reader. REQUIRES: the share has a history.
  void Renote(SessionId session, Share& share, std::string_view note);

 private:
  void Add(Session& session, Share& share, LeaseId id);
  void FinishFence(Share& share);
  // The bytes that the share's history may have in total.
  uint64_t HistoryRoom(const Share& share) const;
  // Charges the difference after the history, which had `before` bytes, has changed.
  void ChargeHistory(const Share& share, uint64_t before);

  const Config& config_;
  Events& events_;
  const Sessions& sessions_;
  Accounts& accounts_;
  Hazards& hazards_;
  Arenas& arenas_;
  Shares& shares_;
  Journal& journal_;
  uint64_t count_ = 0;
  uint64_t pending_fences_ = 0;
  uint64_t lost_fences_total_ = 0;
};

}  // namespace arraybridge::daemon

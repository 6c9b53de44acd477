// Leases are what sessions lease: each keeps a share's bytes as they are until it ends. A share that was published with
// an event (a fence) is leased before the event only to sessions that can wait for it themselves. Each share's readers
// are remembered, charged to its maker.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/broker/arenas/arenas.h"
#include "daemon/broker/calls.h"
#include "daemon/broker/events/events.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/quota/accounts.h"
#include "daemon/broker/sessions/session.h"
#include "daemon/broker/sessions/sessions.h"
#include "daemon/broker/shares/hazards.h"
#include "daemon/broker/shares/history.h"
#include "daemon/broker/shares/shares.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

Visitor VisitorOf(const Session& session);

// Not thread-safe: the broker's lock guards it.
class Leases {
 public:
  // All outlive it.
  Leases(const Config& config, Events& events, const Sessions& sessions, Accounts& accounts, Hazards& hazards,
         Arenas& arenas, Shares& shares);

  // Whether the session may have so many more. RESOURCE_EXHAUSTED: limits.leases_per_session, limits.leases_per_uid.
  Status CheckRoom(const Session& session, uint64_t more) const;
  LeasedShare Grant(Session& session, Share& share);
  // False: the session has no such lease. Its share may be gone after this.
  bool End(Session& session, LeaseId lease);
  // They were granted in an answer that failed.
  void Undo(Session& session, const std::vector<LeasedShare>& leased);
  uint64_t size() const { return count_; }

  // Whether the session can wait for the share's bytes. NOT_FOUND, FENCE_PENDING.
  Status CheckFence(const Session& session, const Share& share, bool final_only) const;
  // The session waits for the event with this lease. REQUIRES: CheckFence says OK.
  static void PassFence(Session& session, Share& share, LeasedShare* leased);
  // A share was published with an event, unless its fence is done.
  void AddFence(Session& maker, Share& share);
  // Its maker says that the event happened, or never will. Adds to `ended` what it and others must be told.
  void EndFence(Session& maker, ShareId share, bool lost, EndedFences* ended);
  // The bytes will never be complete. The share may be gone after this.
  void LoseFence(Share& share);
  uint64_t pending_fences() const { return pending_fences_; }
  uint64_t lost_fences_total() const { return lost_fences_total_; }

  void NoteReader(const Session& session, Share& share, std::string_view note);
  // Replaces the note of a reader. REQUIRES: the share has a history.
  void Renote(SessionId session, Share& share, std::string_view note);

 private:
  void FinishFence(Share& share);
  // Bytes that the share's history may have, those that it has included.
  uint64_t HistoryRoom(const Share& share) const;
  // The history had `before` bytes and has changed.
  void ChargeHistory(const Share& share, uint64_t before);

  const Config& config_;
  Events& events_;
  const Sessions& sessions_;
  Accounts& accounts_;
  Hazards& hazards_;
  Arenas& arenas_;
  Shares& shares_;
  uint64_t count_ = 0;
  uint64_t last_ = 0;
  uint64_t pending_fences_ = 0;
  uint64_t lost_fences_total_ = 0;
};

}  // namespace arraybridge

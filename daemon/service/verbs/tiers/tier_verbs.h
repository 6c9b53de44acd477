// SPDX-License-Identifier: Apache-2.0
// TierVerbs move the bytes of shares between memory and files, for requests (Tier) and for acquires that need them. It
// owns the threads that move: one reads what processes wait for, one makes room for requests, and one does all else, so
// that a long move of one kind does not delay another kind.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/broker/verbs/tiers/tiers.h"
#include "daemon/moves/counted_mover.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/reclaim/worker.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/verbs/tiers/fetches.h"
#include "daemon/service/verbs/tiers/rooms.h"
#include "daemon/service/verbs/tiers/upkeep.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe.
class TierVerbs : VerbParts {
 public:
  // Takes up what the previous daemon left. All arguments outlive it.
  TierVerbs(const VerbParts& parts, PublishVerbs& publishes);

  TierNumbers numbers() const { return mover_ != nullptr ? mover_->numbers() : TierNumbers{.off = unopened_}; }

  // `bytes`: those of the request.
  Served Tier(const Caller& caller, const wire::TierRequest& request, std::string_view bytes, const Later& later);
  // The refusal of an acquire. If it is SHARE_AWAY, the share's bytes are read, and waits for its name are tried when
  // they are in memory; returns the refusal, or why they cannot be read.
  Status Fetch(SessionId session, std::string_view ns, Status refusal);

  // A request for memory of a namespace was refused: moves shares that no process reads to files, and tries the
  // requests that wait for memory again.
  void MakeRoom(const Caller& caller, std::string_view ns, uint64_t bytes, const Status& refusal);

  void DropSession(SessionId session) { moves_.DropSession(session); }
  // Called when the daemon drains.
  void ExpireAll() { moves_.ExpireAll(); }
  // Ends its thread. Durable files stay from now on. Not thread-safe.
  void Stop();

 private:
  void Begin();
  Status CheckTier(const Caller& caller, const wire::TierRequest& request) const;
  Result<Tiers::Listed> Listed(const Caller& caller, const wire::TierRequest& request) const;
  Result<Answer> List(const Caller& caller, const wire::TierRequest& request) const;
  struct Wish {
    SharePlace place;
    wire::TierRequest::Action action{};
    Rank rank;
  };
  Status Moved(const Wish& wish);
  Result<Answer> Move(const Wish& wish);
  Status Enqueue(std::string_view ns, wire::TierRequest::Action action, Waiter waiter);
  void ServeReads();
  void ServeRooms();
  void ServeOthers();
  // Does the next part of the upkeep soon.
  void PlanUpkeep(std::chrono::milliseconds wait);
  // Memory may have become free.
  void Freed();
  // Reads what acquires wait for, a bounded number.
  void ServeFetches();
  // False: it waits for memory.
  bool Read(const Fetches::Fetch& fetch);
  void Announce(const SharePlace& place, std::string_view name);

  PublishVerbs& publishes_;
  Tiers tiers_;
  std::string unopened_;                 // why there is no directory although the configuration names one
  std::unique_ptr<CountedMover> mover_;  // null: there is no directory
  WaitingLine moves_;                    // one request per user in turn
  Fetches fetches_;
  Rooms rooms_;
  Upkeep upkeep_;
  bool retry_planned_ = false;  // of fetches that wait for memory; of the reader's thread
  std::atomic<bool> reads_posted_{false};
  std::atomic<bool> rooms_posted_{false};
  std::atomic<bool> others_posted_{false};
  // Last: their tasks use all of the above.
  Worker reader_{"ab-tier-read"};    // reads that processes wait for
  Worker spiller_{"ab-tier-spill"};  // makes room for requests that wait, and removes files
  Worker other_{"ab-tier-other"};    // all else
};

}  // namespace arraybridge::daemon

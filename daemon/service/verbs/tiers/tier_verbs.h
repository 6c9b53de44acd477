// SPDX-License-Identifier: Apache-2.0
// TierVerbs move the bytes of shares between memory and files, for requests (Tier) and for acquires that need them. It
// owns the one thread that moves.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/broker/verbs/tiers/tiers.h"
#include "daemon/moves/counted_mover.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/reclaim/worker.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/boundary/mutex.h"
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
  Result<Answer> Move(const SharePlace& place, wire::TierRequest::Action action);
  // Reads what acquires wait for.
  void ServeFetches() AB_EXCLUDES(mutex_);
  // Moves shares out until they have so many bytes, the ones that no call has read for the longest time first. Returns
  // the bytes.
  uint64_t MoveOut(const NamespaceKey& of, uint64_t bytes);
  // Moves shares out for the requests that were refused.
  void ServeRoom() AB_EXCLUDES(mutex_);
  void WantRoom(uint32_t owner, std::string_view ns, uint64_t bytes, const Status& refusal) AB_EXCLUDES(mutex_);
  void Serve();
  void Announce(const SharePlace& place, std::string_view name);

  struct Fetching {
    std::string name;
    Clock::time_point until;
    Status failed;  // of the last try that cannot be repeated
  };

  PublishVerbs& publishes_;
  Tiers tiers_;
  std::string unopened_;                 // why there is no directory although the configuration names one
  std::unique_ptr<CountedMover> mover_;  // null: there is no directory
  WaitingLine moves_;                    // one request per user in turn
  mutable Mutex mutex_;
  std::map<SharePlace, Fetching> fetches_ AB_GUARDED_BY(mutex_);
  // The bytes that are wanted, by the namespace whose quota is full; without a name: by the owner of shares on a device
  // that is full.
  std::map<std::pair<uint32_t, std::string>, uint64_t> room_ AB_GUARDED_BY(mutex_);
  std::atomic<bool> posted_{false};
  Worker worker_;  // last: its tasks use all of the above
};

}  // namespace arraybridge::daemon

// Shares are how published ranges lose their names and give their bytes back. Bytes are used again in one order only:
// no name and no lease refers to them (IsLetGo) and no session holds them without a call; then their writer may carve
// them again, or the whole arena dies.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "daemon/broker/arenas/arenas.h"
#include "daemon/broker/calls.h"
#include "daemon/broker/events/events.h"
#include "daemon/broker/flags.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/quota/accounts.h"
#include "daemon/broker/quota/rights.h"
#include "daemon/broker/shares/hazards.h"
#include "daemon/broker/shares/share.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Null: the namespace, which may be null, has no such share.
Share* FindShare(const Namespace* ns, const ShareKey& key);
// REQUIRES: FindShare gave null. SHARE_GONE: it never comes back; SHARE_NOT_FOUND: it may come. A name that could not
// be one is not echoed.
Status NoShare(std::string_view ns, const ShareKey& key, const Limits& limits);

// Not thread-safe: the broker's lock guards it.
class Shares {
 public:
  // All outlive it.
  Shares(const Config& config, const Rights& rights, Events& events, Accounts& accounts, Hazards& hazards,
         Arenas& arenas, Flags& flags);

  ShareId NextId() { return ShareId{++last_}; }
  uint64_t NextGeneration() { return ++last_generation_; }

  // The end that its namespace and its maker set to a share. True: it is the first of all to come.
  bool Limit(Share& share, std::chrono::milliseconds asked);
  // `who`: null for the broker's own doing. `why`: for watchers. The share may be gone after this.
  void Withdraw(Share& share, const Session* who, std::string_view why);
  // All that are there; how many. NOT_FOUND names the first that is not. `who`: null for the administration.
  Result<uint32_t> Withdraw(const Namespace* ns, std::string_view name, std::span<const ShareKey> keys,
                            const Session* who);
  // Its bytes will never be complete: it loses its name.
  void Lose(Share& share, const Session* maker);
  // Gives its bytes back if nothing refers to them. The share may be gone after this, and its arena may be dying.
  void Settle(Share& share);

  // Of a session that has ended: an unnamed one stays for the grace of its namespace, and others as its policy says.
  void LeaveBehind(Share& share, const Session& maker);
  // The last lease of an orphan ended.
  void AwaitOrphan(Share& share);

  // Looks through hazard pages until that has cost about so much. Shares whose bytes wait no more.
  uint64_t LookFor(uint64_t cost_max_ns);
  // Each takes its steps off `steps`.
  void WithdrawOrphans(Clock::time_point now, uint64_t* steps);
  void WithdrawExpired(Clock::time_point now, uint64_t* steps);
  // When the next share expires, or is an orphan no more.
  std::optional<Clock::time_point> NextDue() const;
  bool has_orphans() const { return !orphans_.empty(); }

  uint64_t publishes_total = 0;
  uint64_t acquires_total = 0;
  uint64_t withdrawals_total = 0;

 private:
  void TakeName(Share& share);
  // REQUIRES: it is let go, and no session holds it.
  void Reuse(Share& share);
  void Drop(const Share& share);
  bool GoOnUnheld(Share& share);

  const Config& config_;
  const Rights& rights_;
  Events& events_;
  Accounts& accounts_;
  Hazards& hazards_;
  Arenas& arenas_;
  Flags& flags_;
  // By the end of their grace: unnamed shares whose maker is gone. One whose grace has ended and that is leased is not
  // there until the lease ends; one that may be held waits in its Holding.
  std::set<std::pair<Clock::time_point, Share*>> orphans_;
  std::set<std::pair<Clock::time_point, Share*>> expiring_;  // named ones, by their end
  uint64_t last_ = 0;
  uint64_t last_generation_ = 0;
};

// False: no step is left.
inline bool TakeStep(uint64_t* steps) {
  if (*steps == 0) return false;
  --*steps;
  return true;
}

}  // namespace arraybridge

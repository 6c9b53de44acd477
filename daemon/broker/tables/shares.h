// SPDX-License-Identifier: Apache-2.0
// Shares withdraws names and reuses bytes. The order is fixed: first no name and no lease refers to the bytes (IsLetGo)
// and no session holds them without a call; then the arena's writer may carve them again, or the whole arena dies.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "daemon/broker/ledger/counter.h"
#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/rights.h"
#include "daemon/broker/objects/share.h"
#include "daemon/broker/tables/accounts.h"
#include "daemon/broker/tables/arenas.h"
#include "daemon/broker/tables/events.h"
#include "daemon/broker/tables/hazards.h"
#include "daemon/broker/tables/journal.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Null: the namespace, which may be null, has no such share.
Share* FindShare(const Namespace* ns, const ShareKey& key);
// REQUIRES: FindShare returned null. SHARE_GONE: the share never comes back. SHARE_NOT_FOUND: it may come. An invalid
// name is not echoed.
Status NoShare(std::string_view ns, const ShareKey& key, const Limits& limits);

// Not thread-safe: the broker's lock guards it.
class Shares {
 public:
  // All arguments outlive the table.
  Shares(const Config& config, const Rights& rights, Events& events, Accounts& accounts, Hazards& hazards,
         Arenas& arenas, Flags& flags, Journal& journal);

  ShareId NextId() { return ShareId{ids.Next()}; }
  uint64_t NextGeneration() { return generations.Next(); }

  // Sets the lifetime of the share from its namespace and its maker.
  void SetLifetime(Share& share, std::chrono::milliseconds requested) const;
  // From now on the share loses its name when its lifetime ends. True: it is the first of all shares to expire.
  bool Limit(Share& share);
  // `who`: null for the broker itself. `why`: for watchers. The share may be destroyed.
  void Withdraw(Share& share, const Session* who, std::string_view why);
  // Withdraws all that exist and returns their number. NOT_FOUND names the first missing one. `who`: null for the
  // administration.
  Result<uint32_t> Withdraw(const Namespace* ns, std::string_view name, std::span<const ShareKey> keys,
                            const Session* who);
  // The share has lost its name to another one, as the journal says. Afterwards, call Settle.
  void TakeNameOf(Share& share) { TakeName(share); }
  // The bytes of the share will never be complete: withdraws it.
  void Lose(Share& share, const Session* maker);
  // Its bytes are at the start of `to`. REQUIRES: CheckMovable, and no session holds it.
  void Move(Share& share, Arena& to);
  // Gives its bytes back if nothing refers to them. The share may be destroyed, and its arena may be dying.
  void Settle(Share& share);

  // A call reads the share.
  void NoteRead(Share& share);

  // For a session that has ended: an unnamed share stays for the grace of its namespace, others as its policy says.
  void LeaveBehind(Share& share, const Session& maker);
  // The last lease of an orphan has ended.
  void AwaitOrphan(Share& share);

  // Looks through hazard pages until the cost is about `cost_max_ns`. Returns the number of shares whose bytes wait no
  // longer.
  uint64_t LookFor(uint64_t cost_max_ns);
  // Each call subtracts its steps from `steps`.
  void WithdrawOrphans(Clock::time_point now, uint64_t* steps);
  void WithdrawExpired(Clock::time_point now, uint64_t* steps);
  // When the next share expires, or the grace of an orphan ends.
  std::optional<Clock::time_point> NextDue() const;
  uint64_t expiring() const { return expiring_.size(); }
  bool has_orphans() const { return !orphans_.empty(); }

  Counter ids;
  Counter generations;
  uint64_t unread = 0;  // with a name that their maker chose, and not read by a call yet
  uint64_t publishes_total = 0;
  uint64_t acquires_total = 0;
  uint64_t withdrawals_total = 0;

 private:
  void TakeName(Share& share);
  // The share lives on: the journal learns of it.
  void Note(Share& share);
  // REQUIRES: the share is let go, and no session holds it.
  void Reuse(Share& share);
  void ReturnRange(const Share& share);
  void Drop(const Share& share);
  bool GoOnUnheld(Share& share);

  const Config& config_;
  const Rights& rights_;
  Events& events_;
  Accounts& accounts_;
  Hazards& hazards_;
  Arenas& arenas_;
  Flags& flags_;
  Journal& journal_;
  // Unnamed shares whose maker is gone, by the end of their grace. An orphan whose grace has ended is not in here while
  // it has a lease; one that may be held waits in its NamespaceHazards.
  std::set<std::pair<Clock::time_point, Share*>> orphans_;
  std::set<std::pair<Clock::time_point, Share*>> expiring_;  // named shares, by their expiry
};

// False: no step is left.
inline bool TakeStep(uint64_t* steps) {
  if (*steps == 0) return false;
  --*steps;
  return true;
}

}  // namespace arraybridge::daemon

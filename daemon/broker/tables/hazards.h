// SPDX-License-Identifier: Apache-2.0
// Hazards decides when no session reads a share without calls any more. It knows the hazard pages of all namespaces,
// which of them it looks through next, and the cost of looks for each user.
//
// A NamespaceHazards (namespace_hazards.h) is the part of one namespace. Looks take turns between users and namespaces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/deferred_release.h"
#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/namespace_hazards.h"
#include "daemon/broker/tables/accounts.h"
#include "daemon/broker/tables/backends.h"
#include "daemon/broker/tables/journal.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

class Arena;
class Namespace;
struct Session;
struct Share;

// Approximate cost bounds of a look with the lock held once, and of one user's turn.
inline constexpr uint64_t kLookNs = 200'000;
inline constexpr uint64_t kLookTurnNs = 50'000;

// Not thread-safe: the broker's lock guards it.
class Hazards {
 public:
  // All arguments outlive the table. Dropped pages go to `released`.
  Hazards(const Config& config, const Backends& backends, Accounts& accounts, Flags& flags, DeferredRelease& released,
          Journal& journal);

  // Whether the session may have another page. RESOURCE_EXHAUSTED: limits.object_bytes_per_uid, descriptors_per_uid.
  Status CheckPage(const Session& session) const;
  // `record`: of the page in the journal. REQUIRES: the session has no page in the namespace.
  void AddPage(Namespace& ns, Session& session, const std::shared_ptr<HazardPage>& page, uint32_t record);
  // The session ends, and so do its hazard slots.
  void DropPages(Session& session);
  // The namespace is unused: drops its pages and its catalogue.
  void DropPages(Namespace& ns);

  // From now on the share is found without a call, if its namespace has a catalogue with room.
  void Insert(Share& share) const;
  // Marks the catalogue entries of the arena's shares: no process can write the arena.
  static void MarkEnforced(const Arena& arena);
  // The share waits until no session holds it.
  void Await(Share& share);
  void Unwait(Share& share);

  // A page of the namespace may have changed: it is looked through in its turn.
  void WantLook(Namespace& ns);
  // The same for all namespaces in which a share waits.
  void WantLooks();
  // Does one turn that costs about `cost_max_ns` at most. nullopt: no namespace wants a look, or the budgets are spent.
  std::optional<NamespaceHazards::Slice> Look(uint64_t cost_max_ns);
  bool wants_look() const { return !to_look_at_.empty(); }
  // Sessions that exceed limits.pinned_bytes_per_session, as found by looks. Each is returned once.
  std::vector<SessionId> TakeOverLimit() { return std::exchange(over_limit_, {}); }

 private:
  Namespace* Next();
  Namespace* NextOf(uint32_t uid);
  void EndRound(Namespace& ns);
  uint64_t PinnedBytesMax(const Device& device) const;

  const Config& config_;
  const Backends& backends_;
  Accounts& accounts_;
  Flags& flags_;
  DeferredRelease& released_;
  Journal& journal_;
  std::unordered_set<Namespace*> waited_in_;              // namespaces with waiting shares
  std::set<std::pair<uint64_t, Namespace*>> to_look_at_;  // by user
  uint64_t looked_at_ = 0;                                // the user whose turn was last
  std::vector<SessionId> over_limit_;
};

}  // namespace arraybridge::daemon

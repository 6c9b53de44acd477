// Hazards are how the broker learns that no session reads a share without calls any more: the hazard pages of all
// namespaces, which of them it looks through next, and what that costs each user.
//
// Holding (holding.h) is one namespace's part. A look takes turns between users, and between the namespaces of one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/broker/arenas/backends.h"
#include "daemon/broker/deferred_release.h"
#include "daemon/broker/flags.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/quota/accounts.h"
#include "daemon/broker/shares/holding.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

class Arena;
class Namespace;
struct Session;
struct Share;

// What a look through hazard pages may cost with the lock held once, about; and before it is another user's turn.
inline constexpr uint64_t kLookNs = 200'000;
inline constexpr uint64_t kLookTurnNs = 50'000;

// Not thread-safe: the broker's lock guards it.
class Hazards {
 public:
  // All outlive it. Pages that are dropped go to `released`.
  Hazards(const Config& config, const Backends& backends, Accounts& accounts, Flags& flags, DeferredRelease& released);

  // Whether the session may have one more page. RESOURCE_EXHAUSTED: limits.hold_pages_per_uid, descriptors_per_uid.
  Status CheckPage(const Session& session) const;
  // REQUIRES: the session has no page in the namespace.
  void AddPage(Namespace& ns, Session& session, const std::shared_ptr<HoldsPage>& page);
  // The session ends: its holds do.
  void DropPages(Session& session);
  // The namespace is unused: its pages and its catalogue are.
  void DropPages(Namespace& ns);

  // The share is found without a call from now on, if its namespace has a catalogue with room.
  void Insert(Share& share) const;
  // The entries of the arena's shares say that no process can write it.
  static void MarkEnforced(const Arena& arena);
  // The share waits until no session holds it.
  void Await(Share& share);
  void Unwait(Share& share);

  // A page of the namespace may have changed: it is looked through when its turn comes.
  void WantLook(Namespace& ns);
  // Of all namespaces in which a share waits.
  void WantLooks();
  // One turn, which costs about so much at most. Nothing: no namespace wants a look, or their users' budgets are spent.
  std::optional<Holding::Slice> Look(uint64_t cost_max_ns);
  bool wants_look() const { return !to_look_at_.empty(); }
  // Sessions that looks found to hold more than limits.pinned_bytes_per_session; each is told once.
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
  std::unordered_set<Namespace*> waited_in_;              // those with shares that wait
  std::set<std::pair<uint64_t, Namespace*>> to_look_at_;  // by user
  uint64_t looked_at_ = 0;                                // the user whose turn was last
  std::vector<SessionId> over_limit_;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// State holds the broker's tables behind its one mutex. A verb locks the mutex once or a few times and calls the
// tables. The tables know neither the mutex nor each other's fields.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/at_limit.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/ledger/deferred_release.h"
#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/ledger/random.h"
#include "daemon/broker/objects/rights.h"
#include "daemon/broker/tables/accounts.h"
#include "daemon/broker/tables/arenas.h"
#include "daemon/broker/tables/backends.h"
#include "daemon/broker/tables/channels.h"
#include "daemon/broker/tables/direct_channel_table.h"
#include "daemon/broker/tables/ended_sessions.h"
#include "daemon/broker/tables/events.h"
#include "daemon/broker/tables/forwards.h"
#include "daemon/broker/tables/hazards.h"
#include "daemon/broker/tables/journal.h"
#include "daemon/broker/tables/leases.h"
#include "daemon/broker/tables/namespaces.h"
#include "daemon/broker/tables/sessions.h"
#include "daemon/broker/tables/shares.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

inline Status RefuseAsDirect(const Channel& channel) {
  return FailedPrecondition("channel '", channel.name(), "': the next share is on its direct channel")
      .Because("CHANNEL_IS_DIRECT");
}

// The daemon cannot refuse a read without a call, so only sessions read so that may fill the namespace anyway.
inline constexpr Right kReadWithoutCalls = Right::kWrite;

// The row after which a list continues, and the session that asks. A page token is "number:text"; each list defines
// both.
struct ListPosition {
  const Session* asker = nullptr;  // null: the sessions and shares of all users are listed
  uint64_t number = 0;
  std::string text;

  bool Sees(const Session& session, const ListFilter& filter) const;
};

struct Broker::State {
  State(const Config& chosen, std::vector<MemoryBackend*> all) : config(chosen), backends(std::move(all)) {}

  // Allocating (arena_verbs.cc). CheckAllocate, and the backend that serves the call.
  Result<Backends::Served> ServedFor(SessionId session, const AllocateCall& call) const AB_EXCLUDES(mutex);
  struct Reserved {
    Charge charge;
    Namespace* ns = nullptr;  // lives as long as the Charge does
  };
  Result<Reserved> Reserve(Session& session, const NamespaceKey& key, uint64_t footprint) AB_REQUIRES(mutex);

  // Publishing (publish.cc).
  // The range of the call, or the refusal of what it forwards.
  Status CheckRange(const Session& session, const PublishCall& call, const Arena& arena) const AB_REQUIRES(mutex);
  Status CheckPublish(const Session& session, const PublishCall& call, std::string_view name,
                      uint64_t description_bytes) const AB_REQUIRES(mutex);
  Status SealForEver(SessionId session, const PublishCall& call, std::string_view name) AB_EXCLUDES(mutex);
  // Whether the entry of a direct channel was published before.
  static bool HasPassed(const Session& sender, const PublishCall& call);
  SentFacts SentBy(const Session& sender, Channel& channel, const PublishCall& call) const AB_REQUIRES(mutex);

  // Claims (claim_verbs.cc). `other`: the claim of this name; may be null. `again`: the session held one before.
  Status CheckClaim(const Session& session, std::string_view name, const Claim* other, bool again) const
      AB_REQUIRES(mutex);
  // Ends the session's claim of this name. Null: it has none.
  std::shared_ptr<const Claim> EndClaim(Session& session, Namespace& ns, std::string_view name) AB_REQUIRES(mutex);

  // Acquiring (acquire.cc). Exports the one arena of these leases for which the session had no descriptor.
  Status ExportDescriptor(SessionId session, const std::shared_ptr<MemoryBlock>& block, AcquiredShares* acquired)
      AB_EXCLUDES(mutex);

  // Channels (channel_verbs.cc).
  // The lease that this end received. Null: it stays as it is, because no receiver would get the share.
  Channel* PutBack(Session& session, const Received& undelivered) AB_REQUIRES(mutex);
  // Whether its peer has a right to every namespace that the session uses.
  // `without_calls`: the right to a namespace in which it has a hazard page.
  bool UsesOnlyWhatItMay(const Session& session, Right without_calls) const AB_REQUIRES(mutex);

  // Direct channels (direct_channels.cc).
  // The two ends of a new direct channel of this channel. NOT_FOUND, NO_DIRECT_CHANNEL; RESOURCE_EXHAUSTED.
  Result<DirectChannelRecord> PlanDirectChannel(const Channel& channel) const AB_REQUIRES(mutex);
  // The direct channels of a session that ends; the caller destroys them after it has released the lock.
  std::vector<std::shared_ptr<DirectChannelRecord>> TakeDirectChannels(SessionId session) AB_REQUIRES(mutex);
  // For the next daemon. As DescriptorStore::Store.
  Status Store(DirectChannel& direct) const AB_EXCLUDES(mutex);
  // No end uses it any more.
  void Remove(DirectChannelRecord& direct) AB_REQUIRES(mutex);
  bool IsInDirectChannelOf(const Session& session, ChannelEndId receiving, const Arena& arena) const AB_REQUIRES(mutex);

  // Listing (listing.cc, inspecting.cc). INVALID_ARGUMENT: the token is invalid. NOT_FOUND: the session.
  Result<ListPosition> PositionOf(SessionId session, const ListFilter& filter) const AB_REQUIRES(mutex);
  // `asker`: the session that asks, which does not see other users' processes; null: the administration.
  ShareRow RowOf(const Share& share, Clock::time_point now, const Session* asker) const AB_REQUIRES(mutex);
  OfferRow OfferTo(const Session& session, const Share& share) const AB_REQUIRES(mutex);
  std::vector<ChannelRow::End> EndsOf(const Channel& channel, const Session* asker) const AB_REQUIRES(mutex);
  // Counts all tables. The caller counts the hazard slots in these pages.
  void Count(Snapshot* counted, std::vector<std::shared_ptr<HazardPage>>* pages) const AB_EXCLUDES(mutex);

  // Sweeping (sweep.cc). Does one slice of everything that is due. True: more is due.
  bool ClearSome(Clock::time_point now) AB_REQUIRES(mutex);

  const Config& config;
  const Backends backends;
  Token broker_id = RandomBytes<Token>();  // Recover sets that of the previous daemon, before any verb
  Flags flags;
  Events events{config.limits};  // its mutex is taken after this one

  mutable Mutex mutex;
  bool stopping AB_GUARDED_BY(mutex) = false;  // see Broker::Stop
  // Until then only sessions that held claims of the previous daemon may claim.
  Clock::time_point renewals_until AB_GUARDED_BY(mutex);
  // Each table uses the tables above it. They are destroyed from the last to the first: sessions, and shares in
  // namespaces, refer to arenas; no destructor of an arena refers to them.
  Journal journal;  // guarded by the mutex, except its thread-safe methods
  DeferredRelease released AB_GUARDED_BY(mutex);
  DirectChannelTable direct_channels AB_GUARDED_BY(mutex);
  Counter direct_channel_ids AB_GUARDED_BY(mutex);
  Accounts accounts AB_GUARDED_BY(mutex){config, backends, direct_channels, journal};
  Rights rights AB_GUARDED_BY(mutex){config};
  Hazards hazards AB_GUARDED_BY(mutex){config, backends, accounts, flags, released, journal};
  Arenas arenas AB_GUARDED_BY(mutex){backends, flags, journal};
  Namespaces namespaces AB_GUARDED_BY(mutex){config, backends, rights, accounts, hazards, flags, journal};
  Sessions sessions AB_GUARDED_BY(mutex){flags, released, journal};
  Shares shares AB_GUARDED_BY(mutex){config, rights, events, accounts, hazards, arenas, flags, journal};
  Forwards forwards AB_GUARDED_BY(mutex){direct_channels, hazards};
  Leases leases AB_GUARDED_BY(mutex){config, events, sessions, accounts, hazards, arenas, shares, journal};
  Channels channels AB_GUARDED_BY(mutex){config, rights, shares, flags, journal};
  EndedSessions ended_sessions AB_GUARDED_BY(mutex){arenas, hazards, shares, leases, flags, released};
};

}  // namespace arraybridge::daemon

// What the Broker's one mutex guards, and the few steps of which its verbs are made. Included by broker/*.cc alone.
#pragma once

#include <sys/random.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/at_limit.h"
#include "daemon/broker/account.h"
#include "daemon/broker/arena.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/direct_channel_table.h"
#include "daemon/broker/events.h"
#include "daemon/broker/flows.h"
#include "daemon/broker/heap_use.h"
#include "daemon/broker/namespace.h"
#include "daemon/broker/session.h"
#include "daemon/broker/share.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

template <class T>
T RandomBytes() {
  T value{};
  AB_CHECK(::getrandom(&value, sizeof(value), 0) == static_cast<ssize_t>(sizeof(value)));
  return value;
}

inline Status NoSession() { return NotFound("no such session").Because("SESSION_ENDED"); }
inline Status NoArena(ArenaId arena) {
  return NotFound("arena ", Number(arena), " is not there").Because("ARENA_NOT_FOUND");
}

inline Status IsDirect(const Channel& channel) {
  return FailedPrecondition("channel '", channel.name(), "': what comes next is on its direct channel")
      .Because("CHANNEL_IS_DIRECT");
}

// How many shares, leases or ends of channels are let go with the lock held once; the others when it was free between.
inline constexpr uint64_t kStepsAtOnce = 64;
// What looks through hazard pages may cost with the lock held once, about.
inline constexpr uint64_t kLookNs = 200'000;

// When the last seal of an arena is tried next: it can be slow where it is refused.
struct Enforcement {
  Clock::time_point due{};  // from the start
  std::chrono::milliseconds pause{50};
};

// Where a list goes on, and for whom. A page token is "number:text"; what they mean is each list's own.
struct ListPosition {
  const Session* asker = nullptr;  // null: everybody's is listed
  uint64_t number = 0;
  std::string text;

  bool Sees(const Session& session) const;
};

struct Broker::State {
  State(const Config& chosen, std::vector<MemoryBackend*> all)
      : config(chosen),
        backends(std::move(all)),
        policies(chosen.namespaces),
        default_policy(DefaultPolicy()),
        flows(backends),
        descriptors_max(DescriptorsMax(chosen)) {}

  // Lookups: null for what is not there. What is another session's or another uid's is not there.
  Session* FindSession(SessionId id) const AB_REQUIRES(mutex);
  Namespace* FindNamespace(const NamespaceKey& key) const AB_REQUIRES(mutex);
  Arena* FindArena(ArenaId id) const AB_REQUIRES(mutex);
  Arena* FindWritable(const Session& session, ArenaId id) const AB_REQUIRES(mutex);
  Arena* FindReadable(const Session& session, ArenaId id) const AB_REQUIRES(mutex);
  // Who serves this device to this peer, and the device's full name.
  struct Served {
    MemoryBackend* backend = nullptr;
    Device device;
  };
  // INVALID_ARGUMENT: no such device. FAILED_PRECONDITION: by no handle that it may be offered.
  Result<Served> BackendFor(const Peer& peer, const Device& device) const;
  // CheckAllocate, and who will serve the call.
  Result<Served> ServedFor(SessionId session, const AllocateCall& call) const AB_EXCLUDES(mutex);

  // Namespaces (rights.cc). Whose a peer means by this name, and what it may do there.
  struct Place {
    uint32_t owner = 0;
    Right right = Right::kNone;
  };
  Place PlaceOf(const Peer& peer, std::string_view name) const AB_REQUIRES(mutex);
  // PERMISSION_DENIED. The key views `ns`.
  Result<NamespaceKey> KeyOf(const Session& session, std::string_view ns, Right right) const AB_REQUIRES(mutex);
  bool MayCome(const Peer& peer) const AB_REQUIRES(mutex);
  Status CheckMayCome(const Peer& peer) const AB_REQUIRES(mutex);
  bool MayList(const Peer& peer, const NamespaceKey& key) const AB_REQUIRES(mutex);
  bool MayUse(const Peer& peer, const NamespaceKey& key, Right right) const AB_REQUIRES(mutex);
  bool UsesOnlyWhatItMay(const Session& session) const AB_REQUIRES(mutex);
  // Nobody can name it any more.
  bool IsStranded(const NamespaceKey& key) const AB_REQUIRES(mutex);
  const NamespacePolicy& PolicyOf(std::string_view name) const AB_REQUIRES(mutex);
  uint64_t quota_bytes(const NamespaceKey& key) const AB_REQUIRES(mutex);
  NamespacePolicy DefaultPolicy() const;

  // Counts what there is; the caller counts the holds in these pages.
  void Count(Snapshot* counted, std::vector<std::shared_ptr<HoldsPage>>* pages) const AB_EXCLUDES(mutex);

  // What one user has (accounts.cc).
  const std::shared_ptr<Account>& AccountOf(uint32_t uid) AB_REQUIRES(mutex);
  static uint64_t DescriptorsMax(const Config& config);
  // That the daemon keeps open for this user.
  uint64_t DescriptorsOf(uint32_t uid, const Account& account) const AB_REQUIRES(mutex);
  // RESOURCE_EXHAUSTED: limits.descriptors_per_uid has no room for so many more.
  Status CheckDescriptors(const Session& session, uint64_t more) const AB_REQUIRES(mutex);
  void DropUnusedAccounts() AB_REQUIRES(mutex);

  // Administration (administration.cc).
  Result<NamespaceKey> MeantBy(const NamespaceOf& of) const AB_REQUIRES(mutex);
  NamespaceQuota QuotaAt(const NamespaceKey& key) const AB_REQUIRES(mutex);

  // Arenas (arenas.cc).
  struct Reserved {
    Charge charge;
    Namespace* ns = nullptr;  // lives as long as the Charge does
  };
  Result<Reserved> Reserve(Session& session, const NamespaceKey& key, uint64_t footprint) AB_REQUIRES(mutex);
  uint64_t NamespacesOf(uint32_t uid) const AB_REQUIRES(mutex);
  void DropLateTickets(Session& session, Clock::time_point now) AB_REQUIRES(mutex);

  // Shares and leases (shares.cc).
  Status CheckPublish(const Session& session, const PublishCall& call, std::string_view name,
                      uint64_t description_bytes) const AB_REQUIRES(mutex);
  Status SealForEver(SessionId session, const PublishCall& call, std::string_view name) AB_EXCLUDES(mutex);
  LeasedShare Lease(Session& session, Share& share) AB_REQUIRES(mutex);
  // As Acquire finds one. NOT_FOUND.
  Result<Share*> FindShare(const Session& session, std::string_view ns, const ShareKey& key) const AB_REQUIRES(mutex);
  // The descriptor of an arena that the session was given with these leases.
  Status Bring(SessionId session, const std::shared_ptr<MemoryBlock>& block, AcquiredShares* acquired)
      AB_EXCLUDES(mutex);
  // `who`: null for the administration.
  Result<uint32_t> WithdrawFrom(const NamespaceKey& key, std::span<const ShareKey> keys, const Session* who)
      AB_REQUIRES(mutex);
  // NOT_FOUND, FENCE_PENDING.
  Status CheckFence(const Session& session, const Share& share, bool final_only) const AB_REQUIRES(mutex);
  void TellFence(Session& session, Share& share, LeasedShare* leased) AB_REQUIRES(mutex);
  void Undo(Session& session, const std::vector<LeasedShare>& leased) AB_REQUIRES(mutex);

  // Channels (channels.cc).
  Result<Namespace*> MakeNamespace(const Session& session, const NamespaceKey& key) AB_REQUIRES(mutex);
  Result<Channel*> MakeChannel(Namespace& ns, std::string_view name) AB_REQUIRES(mutex);
  Result<ChannelEnd> EndOf(const Session& session, ChannelEndId id, ChannelRole role) const AB_REQUIRES(mutex);
  void Close(Session& session, ChannelEndId id, const ChannelEnd& end, bool complete, Clock::time_point now)
      AB_REQUIRES(mutex);
  void DropQueued(Channel& channel) AB_REQUIRES(mutex);
  void DropChannel(Channel& channel) AB_REQUIRES(mutex);

  // Direct channels (direct_channels.cc).
  // The two ends of a new direct channel of this channel. NOT_FOUND, NO_DIRECT_CHANNEL; RESOURCE_EXHAUSTED.
  Result<DirectChannelRecord> PlanDirectChannel(const Channel& channel) const AB_REQUIRES(mutex);
  // Those of a session that ends; they die after the lock.
  std::vector<std::shared_ptr<DirectChannelRecord>> TakeDirectChannels(SessionId session) AB_REQUIRES(mutex);
  bool IsInDirectChannelOf(const Session& session, ChannelEndId receiving, const Arena& arena) const AB_REQUIRES(mutex);
  // What happened (telling.cc). `who`: null for the broker's own doing.
  static Event EventOf(EventKind kind, const Session* who, uint32_t owner);
  // `text`: of a withdrawal, why; else the note.
  void TellShare(EventKind kind, const Session* who, const Share& share, std::string_view text) AB_REQUIRES(mutex);
  void TellSession(EventKind kind, const Session& session) AB_REQUIRES(mutex);
  // It is about to be given back; nothing if it is not there.
  void TellRelease(const Session& session, LeaseId lease) AB_REQUIRES(mutex);
  void TellArena(const Session& session, const Arena& arena) AB_REQUIRES(mutex);
  static Visitor VisitorOf(const Session& session);
  void NoteReader(const Session& session, Share& share, std::string_view note) AB_REQUIRES(mutex);
  // Bytes that the share's history may have, those that it has included.
  uint64_t HistoryRoom(const Share& share) const AB_REQUIRES(mutex);
  // The history has grown, or shrunk, since it had `before` bytes.
  void ChargeHistory(const Share& share, uint64_t before) AB_REQUIRES(mutex);

  // Inspecting (inspecting.cc).
  OfferRow OfferTo(const Session& session, const Share& share) const AB_REQUIRES(mutex);

  // Lists (listing.cc). INVALID_ARGUMENT: the token is none; NOT_FOUND: the session.
  // `asker`: who is not told of other users' processes; null: the administration.
  ShareRow RowOf(const Share& share, Clock::time_point now, const Session* asker) const AB_REQUIRES(mutex);
  Result<ListPosition> PositionOf(SessionId session, const ListFilter& filter) const AB_REQUIRES(mutex);

  // Reading without calls (holds.cc).
  // Whether the session may have one more page of holds. RESOURCE_EXHAUSTED: limits.hold_pages_per_uid,
  // descriptors_per_uid.
  Status CheckPage(const Session& session) const AB_REQUIRES(mutex);
  void Enter(Share& share) AB_REQUIRES(mutex);
  void Await(Share& share) AB_REQUIRES(mutex);
  void Unwait(Share& share) AB_REQUIRES(mutex);
  void MarkEnforced(Arena& arena) AB_REQUIRES(mutex);
  void DropHolds(Session& session) AB_REQUIRES(mutex);
  // The account of its session has one less.
  static void UncountPage(const Holding::Page& page);
  // Something may have changed in its pages: it is looked at when its turn comes.
  void WantLook(Namespace& ns) AB_REQUIRES(mutex);
  // The next one, one of each user in turn. Null: none, or none whose user's budget has something left.
  Namespace* NextToLookAt() AB_REQUIRES(mutex);
  Namespace* NextOf(uint32_t uid) AB_REQUIRES(mutex);
  // Looks at those that want it until that has cost about so much. Shares whose bytes wait no more.
  uint64_t LookFor(uint64_t cost_max_ns) AB_REQUIRES(mutex);
  bool GoOnUnheld(Share& share) AB_REQUIRES(mutex);
  void EndRound(Namespace& ns) AB_REQUIRES(mutex);
  // That one session may pin of this device.
  uint64_t pinned_bytes_max(const Device& device) const;

  // Session queues (session_queues.cc).
  void DropQueue(Session& session) AB_REQUIRES(mutex);

  // Endings (reclaim.cc).
  bool EndLease(Session& session, LeaseId lease) AB_REQUIRES(mutex);
  // `why`: for those who watch.
  void Withdraw(Share& share, const Session* who, std::string_view why) AB_REQUIRES(mutex);
  void Settle(Share& share) AB_REQUIRES(mutex);
  // REQUIRES: it is let go, and no session holds it.
  void Reuse(Share& share) AB_REQUIRES(mutex);
  void Drop(const Share& share) AB_REQUIRES(mutex);
  void Give(Session& session, Arena& arena) AB_REQUIRES(mutex);
  void AddHolder(const Arena& arena, const Session& session, Access access) AB_REQUIRES(mutex);
  void DropHolder(ArenaId arena, SessionId session, Access access) AB_REQUIRES(mutex);
  bool WillMapAgain(const Session& session, Arena& arena) const AB_REQUIRES(mutex);
  void Forget(Session& session, Arena& arena) AB_REQUIRES(mutex);
  void GiveBack(Arena& arena) AB_REQUIRES(mutex);
  // Nothing is left to wait for. The share may be gone after this.
  void Finish(Share& share) AB_REQUIRES(mutex);
  // Its bytes will never be what their maker meant: nobody finds it any more.
  void Lose(Share& share) AB_REQUIRES(mutex);
  // The maker says so. Notes in `ended` what it and others must hear.
  void EndFence(Session& maker, ShareId share, bool lost, EndedFences* ended) AB_REQUIRES(mutex);
  void RetireIfIdle(Arena& arena) AB_REQUIRES(mutex);

  // What ends many things at once, in slices (backlog.cc). Each takes its steps off `steps`.
  // Clears a session that has ended. True: nothing is left of it.
  bool Abandon(Session& session, uint64_t* steps) AB_REQUIRES(mutex);
  bool AbandonArenas(Session& session, uint64_t* steps) AB_REQUIRES(mutex);
  void AbandonShare(Session& session, Share& share) AB_REQUIRES(mutex);
  void ClearSessions(uint64_t* steps) AB_REQUIRES(mutex);
  void ClearQueues(uint64_t* steps) AB_REQUIRES(mutex);
  void WithdrawOrphans(Clock::time_point now, uint64_t* steps) AB_REQUIRES(mutex);
  void WithdrawExpired(Clock::time_point now, uint64_t* steps) AB_REQUIRES(mutex);
  void DropLingering(Clock::time_point now, uint64_t* steps) AB_REQUIRES(mutex);
  // One slice of all that is due. True: more is.
  bool ClearSome(Clock::time_point now) AB_REQUIRES(mutex);
  // True: free heap is to be given back to the system; it is told once.
  bool WantsTrim() AB_REQUIRES(mutex);
  std::optional<Clock::time_point> NextDue() const AB_REQUIRES(mutex);

  // The end that its namespace and its maker set to a share. True: it is the first of all to come.
  bool Limit(Share& share, std::chrono::milliseconds asked) AB_REQUIRES(mutex);
  void TakeName(Share& share) AB_REQUIRES(mutex);
  // Into `dead`.
  void DropUnusedNamespaces() AB_REQUIRES(mutex);
  void NoteSeal(ArenaId id, const Result<Immutability>& sealed, Clock::time_point now) AB_REQUIRES(mutex);

  const Config& config;
  const std::vector<MemoryBackend*> backends;
  const Token broker_id = RandomBytes<Token>();

  Events events{config.limits};  // its mutex is taken after this one

  mutable Mutex mutex;
  NamespacePolicies policies AB_GUARDED_BY(mutex);
  NamespacePolicy default_policy AB_GUARDED_BY(mutex);
  std::map<std::pair<uint32_t, std::string>, uint64_t> set_quotas AB_GUARDED_BY(mutex);  // at most limits.namespaces
  // Destroyed from the last to the first: shares (in namespaces) and sessions point into arenas, never the reverse way
  // in a destructor.
  std::unordered_map<ArenaId, std::unique_ptr<Arena>> arenas AB_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Arena>> dying AB_GUARDED_BY(mutex);  // nobody names them; others may map them yet
  std::map<NamespaceKey, std::unique_ptr<Namespace>> namespaces AB_GUARDED_BY(mutex);  // keys view their own names
  std::map<SessionId, std::unique_ptr<Session>> sessions AB_GUARDED_BY(mutex);
  std::map<Token, SessionId> tokens AB_GUARDED_BY(mutex);
  std::unordered_map<uint32_t, std::shared_ptr<Account>> accounts AB_GUARDED_BY(mutex);
  // By the end of their grace: unnamed shares whose maker is gone. One whose grace has ended and that is leased is not
  // there until the lease ends; one that may be held waits in its Holding.
  std::set<std::pair<Clock::time_point, Share*>> orphans AB_GUARDED_BY(mutex);
  std::set<std::pair<Clock::time_point, Share*>> expiring AB_GUARDED_BY(mutex);  // named ones, by their end
  // Sessions that have ended and are not cleared away yet: nothing finds them. One of them after the other, in turn.
  std::deque<std::unique_ptr<Session>> leaving AB_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Session>> cleared AB_GUARDED_BY(mutex);     // they die outside of the lock
  std::vector<std::shared_ptr<const void>> dropped AB_GUARDED_BY(mutex);  // so do pages of sessions
  std::vector<std::unique_ptr<Namespace>> dead AB_GUARDED_BY(mutex);      // too
  // Queues of channels of which nobody receives any more; their shares count as queued.
  std::deque<std::deque<Share*>> unqueued AB_GUARDED_BY(mutex);
  // Without a writer, not yet immutable for everybody.
  std::unordered_map<Arena*, Enforcement> to_enforce AB_GUARDED_BY(mutex);
  // Of arenas whose block does not know its holders, dying ones included.
  std::unordered_map<ArenaId, Holders> holders AB_GUARDED_BY(mutex);
  uint64_t being_swept AB_GUARDED_BY(mutex) = 0;  // dying arenas that a Sweep has in its hands
  uint64_t leases AB_GUARDED_BY(mutex) = 0;
  std::unordered_map<ChannelId, Channel*> channels AB_GUARDED_BY(mutex);
  // Nobody has them open, and nobody was there to receive yet: until when they wait for that.
  std::set<std::pair<Clock::time_point, Channel*>> lingering AB_GUARDED_BY(mutex);
  std::unordered_set<Namespace*> waited_in AB_GUARDED_BY(mutex);  // those with shares that wait for holds to end
  std::set<std::pair<uint64_t, Namespace*>> to_look_at AB_GUARDED_BY(mutex);  // of these, by user
  uint64_t looked_at AB_GUARDED_BY(mutex) = 0;                                // whose turn it was last
  std::vector<SessionId> over_limit AB_GUARDED_BY(mutex);                     // found by looks; not told yet
  std::atomic<bool> holds_waiting{false};                                     // it is not empty
  std::vector<OpenQueue> queues AB_GUARDED_BY(mutex);
  std::atomic<bool> has_queues{false};  // it is not empty
  DirectChannelTable direct_channels AB_GUARDED_BY(mutex);
  uint64_t last_direct_channel AB_GUARDED_BY(mutex) = 0;
  uint64_t pending_fences AB_GUARDED_BY(mutex) = 0;
  uint64_t lost_fences_total AB_GUARDED_BY(mutex) = 0;
  std::atomic<bool> sweep_wanted{false};  // a Sweep would find something that the last one has not seen

  uint64_t last_session AB_GUARDED_BY(mutex) = 0;
  uint64_t last_arena AB_GUARDED_BY(mutex) = 0;
  uint64_t last_share AB_GUARDED_BY(mutex) = 0;
  uint64_t last_lease AB_GUARDED_BY(mutex) = 0;
  uint64_t last_generation AB_GUARDED_BY(mutex) = 0;
  uint64_t last_channel AB_GUARDED_BY(mutex) = 0;
  uint64_t last_channel_end AB_GUARDED_BY(mutex) = 0;
  uint64_t publishes_total AB_GUARDED_BY(mutex) = 0;
  uint64_t acquires_total AB_GUARDED_BY(mutex) = 0;
  uint64_t withdrawals_total AB_GUARDED_BY(mutex) = 0;
  uint64_t tickets_redeemed_total AB_GUARDED_BY(mutex) = 0;
  uint64_t tickets_expired_total AB_GUARDED_BY(mutex) = 0;
  uint64_t tickets_refused_total AB_GUARDED_BY(mutex) = 0;
  HeapUse heap AB_GUARDED_BY(mutex);  // of shares and leases
  Flows flows AB_GUARDED_BY(mutex);
  const uint64_t descriptors_max;
  // On whose account arenas go for as long as the lock is held; kRelease between verbs.
  FreeCause because AB_GUARDED_BY(mutex) = FreeCause::kRelease;
};

}  // namespace arraybridge

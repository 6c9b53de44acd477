// The Broker owns bytes, names and quotas: every verb of the product ends here, whichever door it came through.
// It knows no socket, no gRPC, no protobuf, no thread and no log. It never waits: who must wait is told
// RESOURCE_EXHAUSTED or NOT_FOUND and stands in the service's waiting line.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/channel.h"
#include "daemon/broker/direct_channel_record.h"
#include "daemon/broker/events.h"
#include "daemon/broker/history.h"
#include "daemon/broker/holders.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/snapshot.h"
#include "daemon/config/config.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/fence.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct OpenQueue;

using Token = std::array<uint8_t, 16>;
using Clock = std::chrono::steady_clock;

// As deadlines in frames count.
inline int64_t InMilliseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

inline constexpr std::string_view kDefaultNamespace = "default";
inline std::string_view NamespaceNameOf(std::string_view name) { return name.empty() ? kDefaultNamespace : name; }

// Who stands at the door. Identity is the socket; the pid is for display.
struct Peer {
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t process_id = 0;
  std::string client;
  Door door = Door::kLifeline;
  std::vector<HandleKind> kinds = {HandleKind::kMemfd};  // what it can open, and may be offered
  std::string refused;                                   // why it is not offered other kinds that it could open
  std::vector<std::string> gpus;                         // UUIDs of those that it says it sees; empty: it has not said
  ProcessFd process;                                     // null where the kernel has no pidfd for it
  std::string events;  // two that say the same open each other's interprocess events; empty: it opens nobody's
  std::vector<uint32_t> groups;  // supplementary ones
  std::string token;             // that it stated, which may open namespaces to it; empty: none. A secret

  // What its certificate calls it: of who came over TCP. `uid` is the number that stands for these names then.
  std::vector<std::string> subject;

  Credentials credentials() const { return {uid, gid, groups, token, subject}; }
  bool is_remote() const { return !subject.empty(); }
  // For messages: "user 1000", "subject 'worker-7'".
  std::string who() const;
  bool Opens(HandleKind kind) const;
  bool Sees(const Device& device) const;
  // Whether it may be handed memory of that kind on that device.
  bool MayOpen(HandleKind kind, const Device& device) const { return Opens(kind) && Sees(device); }
  // FAILED_PRECONDITION: KIND_NOT_OFFERED says what it can open, and why not more; DEVICE_NOT_VISIBLE which GPUs it
  // sees. `what` names the memory. REQUIRES: it may not.
  Status CannotOpen(std::string_view what, HandleKind kind, const Device& device) const;
  Status CannotSee(std::string_view what, const Device& device) const;
  Status CannotOpen(std::string_view what, std::string_view shared_as) const;
};

struct OpenedSession {
  SessionId session{};
  Token token{};
};

struct RangeOfArena {
  ArenaId arena{};
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct AllocateCall {
  std::string_view ns;
  Device device;
  uint64_t size = 0;
  std::function<void()> progress{};  // called as populating gets further; empty: nobody asks
};

struct AllocatedArena {
  Handle handle;  // the whole arena; descriptor: writable
};

struct PublishCall {
  std::string_view ns;
  std::string_view name;  // empty: the broker chooses
  ArenaId arena{};
  uint64_t arena_generation = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string description;  // opaque here: checked at the door, read by clients
  Fence fence;
  bool replace = false;
  bool sealed = false;
  std::chrono::milliseconds lifetime{0};  // 0: as long as the namespace lets it
  // The session's sending end of a channel: the share is queued there and has no name, now or later.
  ChannelEndId channel{};
  bool from_direct = false;  // an entry of the channel's direct channel, which is revoked
  std::string note;          // how the bytes came, for who traces
};

struct PublishedShare {
  ShareId share{};
  std::string name;
  uint64_t generation = 0;
  Immutability immutability{};
  std::optional<Clock::time_point> sweep_at;  // it expires then, before all others: sweep
};

struct ShareKey {
  std::string_view name;  // if `id` is 0
  ShareId id{};
  uint64_t generation = 0;  // 0: the newest
};

// What an Acquire answers about one share. Strings are shared with the broker, not copied.
struct LeasedShare {
  LeaseId lease{};
  std::shared_ptr<const ShareFacts> facts;
  Handle handle;  // without a descriptor
  Immutability immutability{};
  Fence fence;
};

struct AcquiredShares {
  std::vector<LeasedShare> shares;
  std::optional<Handle> descriptor;  // of one arena that the session lacked; its `arena` says which
};

// A namespace as an administrator names it: of one that users share, without a user or with kSharedByUsers.
struct NamespaceOf {
  std::string_view ns;
  std::optional<uint32_t> uid;
};

struct NamespaceQuota {
  uint64_t quota_bytes = 0;
  uint64_t charged_bytes = 0;
  bool set = false;  // by SetQuota
};

struct OpenChannelCall {
  std::string_view ns;
  std::string_view name;
  ChannelRole role{};
  uint64_t capacity = 0;  // shares; 0: whatever it is
};

struct OpenedChannel {
  ChannelEndId end{};
  ChannelId channel{};
  uint64_t capacity = 0;
};

// What a session would get that acquires a share now.
struct OfferRow {
  Visitor who;
  std::string why_not;       // empty: the share's kind
  bool waits = false;        // for bytes that are being made: it cannot open the event
  bool gpus_unsaid = false;  // the share lies on a GPU, and the session has not said which it sees
};

struct Inspected {
  ShareRow row;
  Visit maker;  // count 0
  std::vector<Visit> readers;
  uint64_t forgotten = 0;
  std::vector<OfferRow> offers;
  DeviceFacts device;
};

struct ReleasedLeases {
  uint32_t released = 0;
};

struct EndedFences {
  std::vector<uint64_t> awaited;                            // somebody may still wait for the event of these shares
  std::vector<std::shared_ptr<const ShareFacts>> finished;  // those that were pending until now
};

// Thread-safe. One mutex, never held while a backend populates, copies, seals for ever or destroys.
class Broker {
 public:
  // `backends` in order of preference; each device is served by the first that has it. They, and `config`, outlive the
  // broker.
  Broker(const Config& config, std::vector<MemoryBackend*> backends);
  Broker(const Config&& config, std::vector<MemoryBackend*> backends) = delete;
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  const Token& broker_id() const;  // random in every life
  // The configured namespaces are others now: who may use them, their quotas. Limits are read each time. What lies in a
  // namespace that nobody can name any more, since it has become another, is withdrawn.
  struct Adopted {
    std::vector<SessionId> without_right;  // they have something of a namespace that is not for them: to be ended
    uint64_t withdrawn = 0;
  };
  Adopted AdoptNamespaces();
  // PERMISSION_DENIED, NO_RIGHTS: it came over TCP, and no namespace's access list names it.
  Status CheckMayCome(const Peer& peer) const;
  // Whose namespace this session means by that name: its user's, or kSharedByUsers. PERMISSION_DENIED.
  Result<uint32_t> OwnerOf(SessionId session, std::string_view ns, Right right) const;

  // Sessions. RESOURCE_EXHAUSTED: limits.sessions, limits.sessions_per_uid. PERMISSION_DENIED: as CheckMayCome.
  Result<OpenedSession> OpenSession(Peer peer);
  // NOT_FOUND, and nothing more, for a token that is not one.
  Result<SessionId> SessionOf(std::span<const uint8_t> token) const;
  Result<uint32_t> UidOf(SessionId session) const;
  // As it came, or was offered anew. NOT_FOUND.
  Result<Peer> PeerOf(SessionId session) const;
  // What it may be handed from now on: `kinds`, `refused` and `gpus` of `offered`. What it has it keeps.
  void OfferAnew(SessionId session, Peer offered);
  // Ends its leases, tickets, unpublished ranges. Arenas without a live share begin to die, the others stay, whole.
  // Bytes are given back by Sweep. Idempotent. The channels of which it had an end: somebody else's wait may be over.
  std::vector<ChannelId> EndSession(SessionId session);

  // Slow (populates): on a worker. RESOURCE_EXHAUSTED names the quota, the capacity and their numbers.
  Result<AllocatedArena> Allocate(SessionId session, const AllocateCall& call);
  // Before anybody waits: would this Allocate ever succeed? INVALID_ARGUMENT; RESOURCE_EXHAUSTED with a reason that
  // waiting does not lift: ALLOCATION_TOO_LARGE, DEVICE_TOO_SMALL, QUOTA_TOO_SMALL, TOO_MANY_ARENAS.
  Status CheckAllocate(SessionId session, const AllocateCall& call);
  Status Mapped(SessionId session, ArenaId arena);
  Result<PublishedShare> Publish(SessionId session, PublishCall call);
  // All or none. NOT_FOUND names a missing one: SHARE_GONE if an id is missing, which never comes
  // back, else SHARE_NOT_FOUND; FENCE_PENDING: it is there, its bytes are not, and this session, or `final_only`, does
  // not wait for events. Brings at most one descriptor unless `with_descriptor` is false. RESOURCE_EXHAUSTED,
  // ANSWER_TOO_LARGE: names and descriptions alone have more than `bytes_max`; nothing is leased then.
  Result<AcquiredShares> Acquire(SessionId session, std::string_view ns, std::span<const ShareKey> keys,
                                 bool with_descriptor, bool final_only = false, std::string_view note = {},
                                 uint64_t bytes_max = UINT64_MAX);
  // A read-only descriptor of an arena in which the session holds a lease or which it made.
  // `receiving`: or an arena of the sender of the direct channel that this end consumes.
  Result<Handle> Export(SessionId session, ArenaId arena, uint64_t generation, ChannelEndId receiving = {});
  Result<ReleasedLeases> Release(SessionId session, std::span<const uint64_t> leases, std::span<const uint64_t> arenas,
                                 std::span<const uint64_t> unmapped);
  // Of shares that the session published with an event: the work has ended, or failed, which withdraws the share. What
  // is not (any more) such a share is nothing to wait for.
  Result<EndedFences> EndFences(SessionId session, std::span<const uint64_t> done, std::span<const uint64_t> lost);
  // Number of names taken away. NOT_FOUND names the first that is not there; the others are withdrawn all the same.
  Result<uint32_t> Withdraw(SessionId session, std::string_view ns, std::span<const ShareKey> keys);

  // Administration (administration.cc): asked for by nobody's session. INVALID_ARGUMENT: several are meant, or none.
  Result<NamespaceQuota> QuotaOf(const NamespaceOf& of) const;
  // Until it is set again, whatever is configured; nothing: what is configured. RESOURCE_EXHAUSTED: limits.namespaces.
  Result<NamespaceQuota> SetQuota(const NamespaceOf& of, std::optional<uint64_t> bytes);
  Result<uint32_t> Withdraw(const NamespaceOf& of, std::span<const ShareKey> keys);
  // Cached memory goes back to the system: so many bytes. `only`: of this device; NOT_FOUND: there is none. Slow.
  Result<uint64_t> Trim(const std::optional<Device>& only = {});

  // Channels (channels.cc). An end is its session's: for everybody else it is not there, CHANNEL_NOT_OPEN.
  // Makes the channel if it is not there. RESOURCE_EXHAUSTED: limits.channels_per_namespace, members_per_channel,
  // channel_ends_per_session, channel_ends_per_uid;
  // INVALID_ARGUMENT: limits.channel_capacity_max; FAILED_PRECONDITION: it was opened with another capacity.
  Result<OpenedChannel> OpenChannel(SessionId session, const OpenChannelCall& call);
  // `complete`: nothing is missing from what this end sent. The channel, on which others' waits may be over.
  Result<ChannelId> CloseChannel(SessionId session, ChannelEndId end, bool complete);
  // Of an open end. FAILED_PRECONDITION, WRONG_END: its role is the other one.
  Result<ChannelId> ChannelOf(SessionId session, ChannelEndId end, ChannelRole role) const;
  // Publish into a channel is refused with RESOURCE_EXHAUSTED, CHANNEL_FULL, while there is no room, and with
  // FAILED_PRECONDITION, NO_RECEIVER, once nobody receives any more.
  // A lease on the share that was sent first, which is then in the channel no more. NOT_FOUND, CHANNEL_EMPTY: there is
  // none yet; OUT_OF_RANGE, CHANNEL_ENDED: and none will come; ABORTED, SENDER_DIED: and some may be missing.
  Result<AcquiredShares> Receive(SessionId session, ChannelEndId end, bool with_descriptor);
  // What was received did not reach the session: the next Receive brings it, whoever asks. The channels of these
  // leases.
  std::vector<ChannelId> PutBack(SessionId session, std::span<const uint64_t> leases);

  // Every verb that names a namespace is refused with PERMISSION_DENIED, NAMESPACE_DENIED, where it is not for this
  // session, the same whether anything is there or not; NAMESPACE_READ_ONLY where it may only read.

  // Reading without calls (holding.cc). NOT_FOUND: the namespace is not there (yet), or another user's.
  // A read-only description of the namespace's catalogue.
  Result<UniqueFd> ExportCatalogue(SessionId session, std::string_view ns);
  // A writable description of the session's page of holds on it. RESOURCE_EXHAUSTED: limits.hold_pages_per_uid,
  // descriptors_per_uid; FAILED_PRECONDITION, HOLDS_MAPPED.
  Result<UniqueFd> ExportHolds(SessionId session, std::string_view ns);
  // The page is mapped: nobody else can map it writable from now on.
  Status HoldsMapped(SessionId session, std::string_view ns);
  // Withdrawn bytes wait for the end of a hold, of which nobody may ever tell.
  bool holds_waiting() const;
  struct Looked {
    uint64_t freed = 0;                 // shares whose bytes wait no more
    std::vector<SessionId> over_limit;  // limits.pinned_bytes_per_session: to be ended
    bool more = false;                  // it was more than may be looked at at once: LookOn, soon
  };
  // Looks at the pages again, for every share that waits: a slice of that, one user's namespaces after another's.
  Looked LookAtHolds();
  // The next slice of what was asked for.
  Looked LookOn();
  // The session says that a hold of its own has ended: what it reads of is looked at next. True: something waits there.
  bool HoldEnded(SessionId session);

  // Session queues (session_queues.cc): requests without system calls. Their requests are served by the doors. A
  // writable description of the page of requests and a read-only one of the page of completions; the session's unwaited
  // publishes go to `ns`. FAILED_PRECONDITION, QUEUE_TAKEN: it has a queue already. RESOURCE_EXHAUSTED:
  // limits.session_queues_per_uid. INVALID_ARGUMENT: the namespace's name.
  Result<std::vector<UniqueFd>> OpenQueueOf(SessionId session, std::string_view ns);
  // Cheap: whether any session has one.
  bool has_queues() const;
  std::optional<OpenQueue> QueueOf(SessionId session) const;
  // Queues that publish into this namespace, or into any of the user's, and in which something waits.
  std::vector<OpenQueue> PendingQueues(SessionId session, std::optional<std::string_view> ns) const;

  // Direct channels (direct_channels.cc): between the one sender and the one receiver of a channel, both on lifelines.
  // While there is one, these are refused with FAILED_PRECONDITION, CHANNEL_IS_DIRECT: OpenChannel, CloseChannel, a
  // Publish if an entry stands there, a Receive while the channel's queue is empty.
  // The files of the direct channel for an end, in the order of direct_channel::File; the first request makes it.
  // NOT_FOUND, NO_DIRECT_CHANNEL: there is none. RESOURCE_EXHAUSTED: limits.direct_channels_per_uid.
  Result<std::vector<UniqueFd>> ExportDirectChannel(SessionId session, ChannelEndId end);
  // This end has mapped it; once both have, it is open. Returns the channel: requests that wait in it may be over.
  Result<ChannelId> DirectChannelMapped(SessionId session, ChannelEndId end);
  // The direct channel of an end, or of a name; null: there is none. All of which the session is an end.
  std::shared_ptr<const DirectChannelRecord> DirectChannelOf(SessionId session, ChannelEndId end) const;
  std::shared_ptr<const DirectChannelRecord> DirectChannelIn(SessionId session, std::string_view ns,
                                                             std::string_view channel) const;
  std::vector<std::shared_ptr<const DirectChannelRecord>> DirectChannelsOf(SessionId session) const;
  // The direct channel is being revoked: the channel is like any other from now on. `complete`: no share was lost.
  void DirectChannelEnded(const DirectChannelRecord& direct, bool complete);
  // This sender waits for no range of them any more; by their numbers. One that stands is not forgotten.
  void ForgetDirectChannels(SessionId sender, std::span<const uint64_t> numbers);

  // Ranges of the session's own arenas whose share is gone and that nobody leases: its client may carve them again.
  // Each is handed out once; at most `most`.
  std::vector<RangeOfArena> TakeReturned(SessionId session, size_t most);
  // Their answer did not reach the session: the next one brings them.
  void KeepReturned(SessionId session, std::span<const RangeOfArena> ranges);

  // Tickets: a descriptor promised to a session. RESOURCE_EXHAUSTED: limits.tickets_per_session_max.
  Result<Token> IssueTicket(SessionId session, ArenaId arena, Access access);
  struct Redeemed {
    Handle handle;
    bool writable = false;
  };
  // NOT_FOUND for every ticket that is not this session's, used, or too old: without telling which.
  Result<Redeemed> Redeem(SessionId session, std::span<const uint8_t> ticket);

  // Reclaims what nobody names and nobody holds; moves by-contract arenas of dead producers to enforced; ends orphans,
  // late tickets and shares that have expired; drops namespaces that hold nothing. Slow (destroys): on a worker.
  struct Swept {
    uint64_t freed_bytes = 0;
    bool more_later = false;  // something waits for others to let go, or for the end of its grace: call again soon
    bool unfinished = false;  // more has ended than may be cleared away at once: SweepOn, soon
    std::optional<Clock::time_point> next;  // the next share expires, or is an orphan no more
    bool trim = false;                      // the heap has much that is free: give it back to the system
  };
  Swept Sweep(Clock::time_point now);
  // The next slice of what has ended. Short.
  Swept SweepOn(Clock::time_point now);
  // Something was let go since the last Sweep. A range that its own session may carve again is nothing to sweep.
  bool sweep_wanted() const;
  // A process that lives may have memory mapped whose block does not know who holds it: a handle that it was given and
  // has not given back. One system call for each.
  bool MayBeMappedElsewhere() const;

  // What happens (telling.cc). RESOURCE_EXHAUSTED: limits.watchers, limits.watchers_per_uid. It closes with its
  // session.
  Result<WatcherId> OpenWatch(SessionId session, EventFilter filter);
  Events& events();
  const Events& events() const;
  // A door has refused it something.
  void TellRefusal(SessionId session, std::string_view verb, const Status& refusal);
  void TellRefusal(const Peer& peer, std::string_view verb, const Status& refusal);
  // How the session read a share, instead of what it said when it acquired it. What is not known (any more) is not
  // said.
  void Renote(SessionId session, ShareId share, std::string_view note);
  // What there is to know about one share (inspecting.cc). NOT_FOUND as Acquire.
  Result<Inspected> Inspect(SessionId session, std::string_view ns, const ShareKey& key) const;

  // What is there, for List, GetStats and the ledger. A session sees its own uid's namespaces, and shared ones that it
  // may read.
  Result<SharePage> ListShares(SessionId session, const ListFilter& filter) const;
  Result<SessionPage> ListSessions(SessionId session, const ListFilter& filter) const;
  Result<LeasePage> ListLeases(SessionId session, const ListFilter& filter) const;
  Result<NamespacePage> ListNamespaces(SessionId session, const ListFilter& filter) const;
  Result<ChannelPage> ListChannels(SessionId session, const ListFilter& filter) const;
  // Everybody's, for who watches the daemon: not for a session's eyes.
  std::vector<NamespaceRow> Namespaces() const;
  std::vector<DeviceFacts> Devices() const;
  Snapshot TakeSnapshot() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge

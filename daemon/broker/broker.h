// SPDX-License-Identifier: Apache-2.0
// The Broker owns bytes, names and quotas. Every verb of the product ends here, whichever door its request came
// through.
// The broker knows no socket, gRPC, protobuf, thread or log. It never waits: it refuses a request that must wait with
// RESOURCE_EXHAUSTED or NOT_FOUND, and the service puts the request into its waiting line.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/snapshot.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/claim.h"
#include "daemon/broker/objects/direct_channel_record.h"
#include "daemon/broker/objects/peer.h"
#include "daemon/broker/objects/recovered.h"
#include "daemon/broker/tables/events.h"
#include "daemon/config/config.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

struct OpenQueue;
class Tiers;

// Thread-safe. The one mutex is never held while a backend populates, copies, seals permanently or destroys.
class Broker {
 public:
  // `backends` are in order of preference: the first one that has a device serves it. The backends and `config` must
  // outlive the broker.
  Broker(const Config& config, std::vector<MemoryBackend*> backends);
  Broker(const Config&& config, std::vector<MemoryBackend*> backends) = delete;
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // Takes over the previous daemon's store, and from now on keeps it for the next daemon. `clients`: the clients whose
  // lifelines were stored and are alive. FAILED_PRECONDITION, OTHER_LAYOUT: another version wrote the store, which
  // stays as it was. RESOURCE_EXHAUSTED: STORE_FULL, or NO_JOURNAL, the process may not map one; the broker then serves
  // without a store. REQUIRES: called before any other method, once; the store outlives the broker.
  Result<Recovered> Recover(DescriptorStore& store, std::vector<StoredDescriptor> files,
                            const std::vector<LiveClient>& clients);

  // Prepares a request that the client of a recovered session sends again. Takes back what the previous daemon granted
  // in its answer, which did not arrive. Returns the result of a Publish that it served, without a number if the share
  // was sent into a channel and is gone. The request may then be served. A received share is the next one of its
  // channel again; adds the channel to `put_back`.
  std::optional<PublishedShare> TakeBackUnanswered(SessionId session, uint64_t request,
                                                   std::vector<ChannelId>* put_back = nullptr);
  // The session has sent all such requests.
  void Resumed(SessionId session);
  // Stores the lifeline for the next daemon; it leaves the store with the returned object. As DescriptorStore::Store.
  Result<StoreGuard> StoreLifeline(SessionId session, int socket) const;
  // The lifeline that the previous daemon stored. REQUIRES: Recover has returned the session.
  StoreGuard StoredLifeline(SessionId session) const;
  // Continues a session over gRPC that the previous daemon opened. NOT_FOUND: no session with this token waits for its
  // client, or `peer` is another user's.
  Result<OpenedSession> ContinueSession(std::span<const uint8_t> token, Peer peer);
  // A session of this user that waits for its client; the oldest one.
  std::optional<SessionId> AwaitedOf(uint32_t uid) const;
  // The client that continued the session did not learn of it: the session waits for it again.
  void AwaitAgain(SessionId session);
  // True: the session still waited for its client, and does not from now on; the caller ends it.
  bool StopAwaiting(SessionId session);
  // Whether the next daemon takes this one's memory over.
  bool is_stored() const;

  // Random; that of the previous daemon after Recover.
  const Token& broker_id() const;
  // The configuration of the namespaces has changed: their access lists and quotas. The broker reads limits at each
  // use. It withdraws the shares of a namespace that no peer can name any more because its name is shared now, or no
  // longer.
  struct Adopted {
    // sessions that use a namespace without a right to it; the caller must end them
    std::vector<SessionId> without_right;
    uint64_t withdrawn = 0;
  };
  Adopted AdoptNamespaces();
  // The owner of the namespace that the session means by this name: the session's user, or kSharedByUsers.
  // PERMISSION_DENIED.
  Result<uint32_t> OwnerOf(SessionId session, std::string_view ns, Right right) const;

  // Sessions. RESOURCE_EXHAUSTED: limits.sessions, limits.sessions_per_uid.
  Result<OpenedSession> OpenSession(Peer peer);
  // The answer of OpenSession for this session. NOT_FOUND.
  Result<OpenedSession> OpenedAs(SessionId session) const;
  // NOT_FOUND, without a further reason, for an unknown token.
  Result<SessionId> SessionOf(std::span<const uint8_t> token) const;
  Result<uint32_t> UidOf(SessionId session) const;
  // The peer as it connected, or as OfferAnew has changed it. NOT_FOUND.
  Result<Peer> PeerOf(SessionId session) const;
  // Sets the handles that the session may receive from now on: `kinds`, `refused` and `gpus` of `offered`. The session
  // keeps the handles that it has.
  void OfferAnew(SessionId session, Peer offered);
  // Ends the session's leases, tickets and unpublished ranges. Arenas without a live share begin to die; the others
  // stay whole. Sweep gives the bytes back. Idempotent. Returns the channels of which the session had an end: waits of
  // other sessions on them may be over. Adds its claims to `claims`: waits for their names may be over.
  std::vector<ChannelId> EndSession(SessionId session, std::vector<std::shared_ptr<const Claim>>* claims = nullptr);
  // The process ends. Clients of sessions that end from now on keep reading, so an ended session frees no range.
  void Stop();

  // Slow (populates): call it on a worker. RESOURCE_EXHAUSTED names the quota, the capacity and their numbers.
  Result<AllocatedArena> Allocate(SessionId session, const AllocateCall& call);
  // Checks before a wait whether this Allocate can ever succeed. INVALID_ARGUMENT; RESOURCE_EXHAUSTED with a reason
  // that waiting does not lift: ALLOCATION_TOO_LARGE, DEVICE_TOO_SMALL, QUOTA_TOO_SMALL, TOO_MANY_ARENAS.
  Status CheckAllocate(SessionId session, const AllocateCall& call);
  Status Mapped(SessionId session, ArenaId arena);
  Result<PublishedShare> Publish(SessionId session, PublishCall call);
  // Leases all shares or none. NOT_FOUND names a missing share: SHARE_GONE if an id is missing (an id never comes
  // back), else SHARE_NOT_FOUND. FENCE_PENDING: the share exists, its bytes are still being made, and this session does
  // not wait for events, or `final_only` is set. The answer has at most one descriptor, and none if `with_descriptor`
  // is false. RESOURCE_EXHAUSTED, ANSWER_TOO_LARGE: names and descriptions alone exceed `bytes_max`; no share is leased
  // then.
  Result<AcquiredShares> Acquire(SessionId session, std::string_view ns, std::span<const ShareKey> keys,
                                 bool with_descriptor, bool final_only = false, std::string_view note = {},
                                 uint64_t bytes_max = UINT64_MAX, uint64_t request = 0);
  // A read-only descriptor of an arena that the session made, or in which it holds a lease. With `receiving`: of an
  // arena in which entries of the direct channel that this end consumes may lie.
  Result<Handle> Export(SessionId session, ArenaId arena, uint64_t generation, ChannelEndId receiving = {});
  // Returns the number of leases that existed.
  Result<uint32_t> Release(SessionId session, std::span<const uint64_t> leases, std::span<const uint64_t> arenas,
                           std::span<const uint64_t> unmapped);
  // Of shares that the session published with an event: the work has ended, or it failed, which withdraws the share.
  // Ids of other shares, and of shares that are gone, are ignored.
  // Returns the leases among these whose share's maker has ended.
  std::vector<uint64_t> EndedMakers(SessionId session, std::span<const uint64_t> leases);
  Result<EndedFences> EndFences(SessionId session, std::span<const uint64_t> done, std::span<const uint64_t> lost);
  // Returns the number of names that it took away. NOT_FOUND names the first missing share; the others are withdrawn
  // all the same.
  Result<uint32_t> Withdraw(SessionId session, std::string_view ns, std::span<const ShareKey> keys);

  // Claims (claim_verbs.cc). Claims the name of `key` and returns the claim's number; 0: the share of the key is there.
  // `held`: a claim of this session, which is renewed. `lifetime` 0: as long as the session. NOT_FOUND, NAME_CLAIMED:
  // another session holds the claim. RESOURCE_EXHAUSTED: Limits.claims_per_session, object_bytes_per_uid, namespaces.
  Result<uint64_t> ClaimName(SessionId session, std::string_view ns, const ShareKey& key,
                             std::chrono::milliseconds lifetime, uint64_t held = 0);
  // Returns the ended claim, for whose name other sessions may wait. Null: the session does not hold it.
  std::shared_ptr<const Claim> ReleaseClaim(SessionId session, uint64_t number);

  // Administration (administration.cc), without a session. INVALID_ARGUMENT: `of` names several namespaces, or none.
  Result<NamespaceQuota> QuotaOf(const NamespaceOf& of) const;
  // Sets a quota that overrides the configured one until the next call. nullopt: back to the configured quota.
  // RESOURCE_EXHAUSTED: limits.namespaces.
  Result<NamespaceQuota> SetQuota(const NamespaceOf& of, std::optional<uint64_t> bytes);
  Result<uint32_t> Withdraw(const NamespaceOf& of, std::span<const ShareKey> keys);
  // Gives cached memory back to the system and returns the number of bytes. `only`: of this device; NOT_FOUND: no such
  // device. Slow.
  Result<uint64_t> Trim(const std::optional<Device>& only = {});

  // Channels (channel_verbs.cc). Only the session that opened an end can use it; others get CHANNEL_NOT_OPEN.
  // Makes the channel if there is none. RESOURCE_EXHAUSTED: limits.channels_per_namespace, members_per_channel,
  // object_bytes_per_uid, Limits.channel_ends_per_session. INVALID_ARGUMENT: limits.channel_capacity_max, or the
  // terms contradict each other. FAILED_PRECONDITION, CHANNEL_CAPACITY or CHANNEL_MODE: the channel has other terms.
  Result<OpenedChannel> OpenChannel(SessionId session, const OpenChannelCall& call);
  // `how`: kClosed or kAbandoned. Returns the channel: waits of other sessions on it may be over.
  Result<ChannelId> CloseChannel(SessionId session, ChannelEndId end, EndedHow how);
  // The channel of an open end. FAILED_PRECONDITION, WRONG_END: the end has the other role.
  Result<ChannelPlace> ChannelOf(SessionId session, ChannelEndId end, ChannelRole role) const;
  // The channel of this end, with all its ends, and the end's role. NOT_FOUND: the session has no such end.
  Result<std::pair<ChannelRow, ChannelRole>> ChannelRowOf(SessionId session, ChannelEndId end) const;
  std::vector<ChannelEndId> ReceiversOf(ChannelId channel) const;
  // Drops the queued shares, and the channel if it has no open end. NOT_FOUND, CHANNEL_NOT_FOUND. FAILED_PRECONDITION:
  // CHANNEL_IS_DIRECT; with `remove` CHANNEL_IN_USE, if an end is open.
  Result<DrainedChannel> DrainChannel(SessionId session, std::string_view ns, std::string_view name, bool remove);
  // Refuses with the notice that follows the notice `seen`, if there is one for this end now (objects/notices.h). For
  // a receiver: OUT_OF_RANGE, CHANNEL_ENDED; ABORTED, SENDER_DIED, SENDER_ABANDONED. For a sender: FAILED_PRECONDITION,
  // NO_RECEIVER; ABORTED, RECEIVER_DIED, RECEIVER_ABANDONED.
  Status NoticeTo(SessionId session, ChannelEndId end, uint64_t seen) const;
  // Publish into a channel is refused with a notice, or with RESOURCE_EXHAUSTED, CHANNEL_FULL, while the channel has no
  // room. Receive takes the oldest share out of the channel and leases it; it is refused with a notice, or with
  // NOT_FOUND, CHANNEL_EMPTY: no share is queued yet.
  // `request`: as in PublishCall.
  Result<AcquiredShares> Receive(SessionId session, ChannelEndId end, uint64_t seen, bool with_descriptor,
                                 uint64_t request = 0);
  // The answer with these received shares did not reach the session: the next Receive of any session returns them.
  // Returns the channels of these leases.
  std::vector<ChannelId> PutBack(SessionId session, std::span<const Received> undelivered);

  // Verbs on a namespace to which the session has no right are refused with PERMISSION_DENIED, NAMESPACE_DENIED,
  // whether the namespace exists or not; with NAMESPACE_READ_ONLY if the session may only read.

  // Reading without calls (hazard_verbs.cc). NOT_FOUND: the namespace does not exist (yet), or belongs to another user.
  // A read-only descriptor of the namespace's catalogue.
  Result<UniqueFd> ExportCatalogue(SessionId session, std::string_view ns);
  // A writable descriptor of the session's hazard page in the namespace. RESOURCE_EXHAUSTED:
  // limits.object_bytes_per_uid, descriptors_per_uid. FAILED_PRECONDITION, HAZARD_PAGE_MAPPED.
  Result<UniqueFd> ExportHazardPage(SessionId session, std::string_view ns);
  // The session has mapped its page: from now on no other process can map it writable.
  Status HazardPageMapped(SessionId session, std::string_view ns);
  // Whether withdrawn bytes wait until a hazard slot is cleared. No message need report that.
  bool hazards_waiting() const;
  struct Looked {
    uint64_t freed = 0;                 // shares whose bytes wait no longer
    std::vector<SessionId> over_limit;  // sessions above limits.pinned_bytes_per_session; the caller must end them
    bool more = false;                  // the look reached its limit: call LookOn soon
  };
  // Looks through the hazard pages again, for all shares that wait. One call does one slice, in turns between users.
  Looked PollHazards();
  // Does the next slice of the look.
  Looked LookOn();
  // The session says that it has cleared a hazard slot: the namespaces in which it reads are looked at next. True: a
  // share waits there.
  bool HazardCleared(SessionId session);

  // Session queues (queue_verbs.cc): requests without system calls, served by the doors. OpenQueueOf returns a writable
  // descriptor of the page of requests and a read-only one of the page of completions; the session's unwaited publishes
  // go to `ns`. FAILED_PRECONDITION, QUEUE_TAKEN: the session has a queue already. RESOURCE_EXHAUSTED:
  // limits.object_bytes_per_uid. INVALID_ARGUMENT: the name of the namespace.
  Result<std::vector<UniqueFd>> OpenQueueOf(SessionId session, std::string_view ns);
  // Whether any session has a queue. Cheap.
  bool has_queues() const;
  std::optional<OpenQueue> QueueOf(SessionId session) const;
  // Queues with requests that publish into this namespace, or into any namespace of the session's user.
  std::vector<OpenQueue> PendingQueues(SessionId session, std::optional<std::string_view> ns) const;

  // Direct channels (direct_channels.cc): between the one sender and the one receiver of a channel, both on lifelines.
  // While there is one, these are refused with FAILED_PRECONDITION, CHANNEL_IS_DIRECT: OpenChannel, CloseChannel, a
  // Publish if an entry stands there, a Receive while the channel's queue is empty.
  // The files of the direct channel for an end, in the order of direct_channel::File; the first request makes it.
  // NOT_FOUND, NO_DIRECT_CHANNEL: there is none. RESOURCE_EXHAUSTED: limits.object_bytes_per_uid.
  Result<ExportedDirectChannel> ExportDirectChannel(SessionId session, ChannelEndId end);
  // This end has mapped it; once both have, it is open. Returns the channel: requests that wait in it may be over.
  // NOT_FOUND: the direct channel with this number has ended.
  Result<ChannelId> DirectChannelMapped(SessionId session, ChannelEndId end, uint64_t number);
  // The direct channel of an end, or of a name; null: there is none. All direct channels of the session's ends.
  std::shared_ptr<const DirectChannelRecord> DirectChannelOf(SessionId session, ChannelEndId end) const;
  std::shared_ptr<const DirectChannelRecord> DirectChannelIn(SessionId session, std::string_view ns,
                                                             std::string_view channel) const;
  std::vector<std::shared_ptr<const DirectChannelRecord>> DirectChannelsOf(SessionId session) const;
  // The direct channel is being revoked: the channel is like any other from now on. `complete`: no share was lost.
  // `taken`: shares that the receiver took from it.
  void DirectChannelEnded(const DirectChannelRecord& direct, bool complete, uint64_t taken);
  // This sender waits for no range of these direct channels any more. A direct channel that stands is not forgotten.
  void ForgetDirectChannels(SessionId sender, std::span<const uint64_t> numbers);

  // Ranges of the session's own arenas whose share is gone and has no lease: the client may carve them again. Each
  // range is returned once; one call returns at most `most`.
  std::vector<RangeOfArena> TakeReturned(SessionId session, size_t most);
  // The answer with these ranges did not reach the session: the next TakeReturned returns them.
  void KeepReturned(SessionId session, std::span<const RangeOfArena> ranges);

  // Tickets: each stands for a descriptor that the session may fetch. RESOURCE_EXHAUSTED:
  // Limits.tickets_per_session.
  Result<Token> IssueTicket(SessionId session, ArenaId arena, Access access);
  struct Redeemed {
    Handle handle;
    bool writable = false;
  };
  // NOT_FOUND for every ticket that is used, too old, or of another session; the message does not tell which.
  Result<Redeemed> Redeem(SessionId session, std::span<const uint8_t> ticket);

  // Reclaims arenas that have neither a name nor a reader; moves by-contract arenas of dead producers to enforced; ends
  // orphans, late tickets and expired shares; drops empty namespaces. Slow (destroys): call it on a worker.
  struct Swept {
    uint64_t freed_bytes = 0;
    bool more_later = false;  // something waits for a reader, or for the end of its grace: call again soon
    bool unfinished = false;  // the sweep reached its limit: call SweepOn soon
    std::optional<Clock::time_point> next;  // when the next share expires, or the grace of an orphan ends
  };
  Swept Sweep(Clock::time_point now);
  // Does the next slice of the sweep. Short.
  Swept SweepOn(Clock::time_point now);
  // Whether something was released since the last Sweep. A range that its own session may carve again does not count.
  bool sweep_wanted() const;
  // Whether a live process may have memory mapped that its block cannot track: the process got a handle and has not
  // given it back. One system call per handle.
  bool MayBeMappedElsewhere() const;

  // Events (event_verbs.cc). RESOURCE_EXHAUSTED: limits.watchers, of which one user may have a part. A watch closes
  // with its session.
  Result<WatcherId> OpenWatch(SessionId session, EventFilter filter);
  Events& events();
  const Events& events() const;
  // Emits an event: a door has refused a request of the session or the peer.
  void EmitRefusal(SessionId session, std::string_view verb, const Status& refusal);
  void EmitRefusal(const Peer& peer, std::string_view verb, const Status& refusal);
  // Replaces the note of a reader of the share. Ignored if the session, the share or the reader is unknown.
  void Renote(SessionId session, ShareId share, std::string_view note);
  // Everything about one share (inspecting.cc). NOT_FOUND as in Acquire.
  Result<Inspected> Inspect(SessionId session, std::string_view ns, const ShareKey& key) const;

  // Rows for List, GetStats and the ledger. A session sees the namespaces of its own user, and the shared ones that it
  // may read.
  Result<SharePage> ListShares(SessionId session, const ListFilter& filter) const;
  Result<SessionPage> ListSessions(SessionId session, const ListFilter& filter) const;
  Result<LeasePage> ListLeases(SessionId session, const ListFilter& filter) const;
  Result<NamespacePage> ListNamespaces(SessionId session, const ListFilter& filter) const;
  Result<ChannelPage> ListChannels(SessionId session, const ListFilter& filter) const;
  // For the operator, across all users. Sessions must not see these rows.
  std::vector<NamespaceRow> NamespaceRows() const;
  // The bytes of a namespace and its largest shares and queues, for a session that may read it.
  Result<NamespaceUse> UseOf(SessionId session, std::string_view ns) const;
  std::vector<DeviceFacts> Devices() const;
  Snapshot TakeSnapshot() const;

 private:
  friend class Tiers;  // its verbs on shares in files
  struct State;
  class ChannelRecovery;
  class Recovery;
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge::daemon

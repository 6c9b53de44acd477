// SPDX-License-Identifier: Apache-2.0
// Broker is a client's connection to arraybridged: put arrays in, get arrays out, with at most one copy. It connects
// when it is first needed, and again after the daemon has restarted. Thread-safe. After a fork the child connects for
// itself. Depends only on libc and libstdc++.
//
//   arraybridge::Broker broker({.address = "/run/arraybridge"});
//   auto share = broker.Put({&view, 1}, {.name = "frame"});
//   auto got = broker.Acquire({.name = "frame"});       // in any process
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/channel.h>
#include <arraybridge/share.h>
#include <arraybridge/view.h>
#include <arraybridge/watch.h>

#include "proto/boundary/result.h"

namespace arraybridge {

class Connection;

struct ServerInfo {
  std::string version;
  std::string broker_id;  // 16 bytes
  uint32_t protocol_min = 0;
  uint32_t protocol_max = 0;
  uint64_t uptime_ms = 0;
};

struct Stats {
  uint64_t sessions = 0, leases = 0, shares = 0, withdrawn_shares = 0, arenas = 0, charged_bytes = 0, tickets = 0,
           waiting = 0, dying_arenas = 0, sessions_total = 0, publishes_total = 0, forwards_total = 0,
           acquires_total = 0, refusals_total = 0, sessions_cut_total = 0, pending_fences = 0, lost_fences_total = 0;
  uint64_t hazard_slots = 0;            // hazard slots in use: shares held without a call
  uint64_t pinned_bytes = 0;            // of withdrawn shares that only hazard slots keep
  uint64_t channels = 0;                // open channels
  uint64_t queued_shares = 0;           // sent and not yet received
  uint64_t channel_sent_total = 0;      // those in a direct channel count when it ends
  uint64_t channel_received_total = 0;  // by each receiver
  uint64_t channel_dropped_total = 0;   // missed by receivers, or drained
  uint64_t watchers = 0;                // open watches
  uint64_t events_dropped_total = 0;
  uint64_t capacity_bytes = 0, allocated_bytes = 0, cached_bytes = 0, quarantined_bytes = 0;  // summed over devices
};

struct ListedShare {
  Share share;
  uint64_t maker = 0;
  uint64_t maker_process_id = 0;
  uint64_t leases = 0;
  uint64_t age_ms = 0;
};

// Counters of this process, for tests and diagnosis.
struct ClientStats {
  uint64_t arenas_written = 0;  // arenas of this session
  uint64_t arena_bytes = 0;
  uint64_t arenas_mapped = 0;  // arenas mapped for reading
  uint64_t live_leases = 0;
  uint64_t pending_releases = 0;
  uint64_t catalogue_acquires = 0;  // acquires without a call, in total
  uint64_t unwaited_publishes = 0;  // in total
  uint64_t direct_shares = 0;       // sent into channels or received without a call, in total
  uint64_t writable_gpu_maps = 0;   // of readers, because the driver maps no GPU memory read-only, in total
};

// The outcome of a request that timed out at the caller.
struct Outcome {
  Status status{};               // OK: the request was executed; otherwise the reason why it was not
  std::optional<Share> share{};  // of an executed Publish
};

class Broker {
 public:
  struct Options {
    // The directory of the daemon's sockets, or the path of a lifeline socket. Empty: FindAddress (address.h).
    std::string address{};
    std::string ns = "default";
    std::chrono::milliseconds timeout{10000};  // of calls without a timeout of their own
    std::string client{};                      // a name for display, at most 64 bytes
    // A thread that waits for the broker calls this ten times a second, without locks held; true ends the call with
    // CANCELLED.
    std::function<bool()> interrupted{};
    // How long a thread that waits for an answer polls, yielding the processor, before it sleeps. 0: it sleeps at once.
    std::chrono::microseconds spin{30};
    // Path of the CUDA driver library; empty: libcuda.so.1 of the system. The first Broker in a process that uses the
    // driver determines it for all.
    std::string cuda_driver{};
    // A mapping for reading is kept for the next Acquire until it was unused for Limits::arena_idle of the broker. If
    // more arenas or bytes than these are mapped, mappings without arrays are released earlier, the least recently used
    // first. A mapping of host memory costs a descriptor; a mapping of a GPU keeps its memory allocated.
    uint64_t read_arenas_max = 256;
    uint64_t read_bytes_max = uint64_t{64} << 30;
    // True: shares are found and held without calls where possible. False: every Acquire is a call.
    bool catalogue = true;
    // True: arrays are exchanged with one other process through a channel without calls where possible
    // (docs/explanation/fast-path.md).
    bool direct_channels = true;
    // A secret from the operator that opens namespaces in addition to those that are open to the user; at most 256
    // bytes. A call that names a namespace which is open to neither is refused with PERMISSION_DENIED.
    std::string token{};
  };

  explicit Broker(Options options);
  ~Broker();
  Broker(Broker&&) noexcept;
  Broker& operator=(Broker&&) noexcept;

  const Options& options() const;

  struct PublishOptions {
    std::string name{};    // empty: the broker chooses
    bool replace = false;  // false: ALREADY_EXISTS
    // The bytes become immutable, even for this process: the placement's views become invalid. REQUIRES: the placement
    // was made with `own`, and none of its views is in use; otherwise FAILED_PRECONDITION.
    bool sealed = false;
    std::string structure{};
    std::string metadata{};
    // Shown when the share is traced: how its bytes were written. UTF-8, at most 64 bytes (limits.note_bytes_max).
    std::string note{};
    // False: the call does not wait for the broker's answer, if the share is host memory under a new name. Every
    // process can find the share from then on; the returned Share has no id and no generation. In other cases the call
    // waits all the same. An error, for instance NAME_TAKEN, is returned by the next Flush, Confirm or Publish with
    // wait = false, which then does nothing else. REQUIRES: a name.
    bool wait = true;
    // Time after which the share is withdrawn, unless the lifetime of the namespace is shorter. 0: the lifetime of the
    // namespace.
    std::chrono::milliseconds lifetime{0};
    // Of Put. False: the bytes are copied even if they lie in a share.
    bool forward = true;
  };
  struct PlaceOptions {
    bool own = false;                // an arena of its own, needed to publish with `sealed`; host memory only
    std::optional<Device> device{};  // the host, or a GPU by UUID or by its ordinal in this process
    PublishOptions publish{};        // the options of the later Publish
    std::optional<std::chrono::milliseconds> timeout{};  // to wait for room, if it is less than the Broker's
    // True: host memory that is registered with the CUDA driver (pinned): copies between it and GPUs are asynchronous.
    // The range is not used again before the work that GPUs have when its last view is dropped has ended. A copy into
    // it must have ended before it is published, and its bytes must not be written before a copy out of it has ended.
    // UNAVAILABLE: no driver, or no GPU. INVALID_ARGUMENT: with `own`, or on a GPU.
    bool pinned = false;
  };
  // Allocates writable memory for arrays of these specs (offsets and strides are ignored and chosen here), in one range
  // on `device`, by default the host. Waits for room until the timeout, then fails with RESOURCE_EXHAUSTED.
  // INVALID_ARGUMENT: the broker would refuse to publish the arrays with `publish`. For a GPU: FAILED_PRECONDITION if
  // it is not visible here, UNAVAILABLE without a driver.
  Result<Placement> Empty(std::span<const ArraySpec> specs, const PlaceOptions& options);
  Result<Placement> Empty(std::span<const ArraySpec> specs, bool own = false, const Device& device = {}) {
    return Empty(specs, {.own = own, .device = device, .publish = {}});
  }
  // Empty, followed by a copy of each view. The default device is the one where all sources lie; INVALID_ARGUMENT if
  // they lie on several. Copies from a GPU are ordered after the work that each view's producer has queued on its
  // stream. They are complete on return, except copies that can be queued on that stream (View::stream_is_producers);
  // the placement keeps the sources of these. Copies between two GPUs go through the host. Views of a GPU must be
  // compact and row-major: UNIMPLEMENTED otherwise.
  Result<Placement> Place(std::span<const View> sources, const PlaceOptions& options);
  Result<Placement> Place(std::span<const View> sources, bool own = false) {
    return Place(sources, {.own = own, .device = {}, .publish = {}});
  }
  Result<Placement> Place(std::span<const View> sources, bool own, const Device& device) {
    return Place(sources, {.own = own, .device = device, .publish = {}});
  }
  // GPU memory may be published before the work on the streams of the placement's views, and the copies of Place, have
  // ended. Readers then wait for an event, and this process tells the broker when the event is no longer needed. Where
  // events do not work, Publish waits for the work. If the process ends before the work does, the share is lost:
  // destroy the Broker or call Settle before exit. REQUIRES: all other writes to the placement have ended.
  Result<Share> Publish(const Placement& placement, const PublishOptions& options);
  // Place and Publish in one call: copies `sources`, which lie in host memory or on one device. This is the fastest way
  // for host arrays, because no Placement is created; with `wait = false` and a new name it needs no answer of the
  // broker either. Sources that lie in one share of this namespace, acquired or received here, are not copied: the new
  // share uses the same bytes, and both keep them.
  Result<Share> Put(std::span<const View> sources, const PublishOptions& options);
  // Returns the unpublished placement of this session that contains `views`, 256-byte aligned and compact, so that it
  // can be published without a copy. Or returns a forward of the share in which they lie. Nothing: there is neither;
  // use Place. `why` is set then, if views that lie in shares need a copy. LAYOUT: they are not aligned or not compact.
  // WRITTEN: this process has written them. APART: they lie in several shares, or elsewhere. A forward may be refused
  // with FAILED_PRECONDITION, NOT_FORWARDED when it is published: use Place then, too. `joins`: placements that follow
  // one another in memory become one, which is published next or never.
  std::optional<Placement> PlacementOf(std::span<const View> views, std::string_view* why = nullptr,
                                       bool joins = false);
  // How arrays came into a channel: as copies, as a forward of their share, or where they were born.
  enum class Passed : uint8_t { kCopied, kForwarded, kInPlace };
  // Sends arrays, wherever they lie, with at most one copy: as a forward if they lie in one share, otherwise as copies,
  // by Channel::TrySend where it can. `in_place`: arrays of an unpublished placement go as they are, and must not be
  // written then. The timeout of `options` is for memory and for room in the queue together. While the call waits for
  // memory, it checks the channel whenever Options::timeout has passed. RESOURCE_EXHAUSTED: no memory came in time.
  // Other errors as of Place and Channel::Send. REQUIRES: the channel is of this Broker.
  Result<Passed> Send(Channel& channel, std::span<const View> sources, Channel::SendOptions options,
                      bool in_place = false);

  struct AcquireOptions {
    MapMode mode = MapMode::kShared;
    // How long to wait for a name that does not exist, then DEADLINE_EXCEEDED; 0: NOT_FOUND at once. For bytes that a
    // GPU is still writing, if this process cannot wait for them itself: five seconds, or `timeout` if that is less,
    // then DEADLINE_EXCEEDED, FENCE_PENDING.
    std::chrono::milliseconds wait{0};
    // Shown when the share is traced: how it is read. As PublishOptions::note. Acquires without a call do not report
    // it.
    std::string note{};
  };
  Result<Acquired> Acquire(const ShareRef& ref, const AcquireOptions& options);
  Result<Acquired> Acquire(const ShareRef& ref) { return Acquire(ref, AcquireOptions{}); }
  // Acquire without a call and without waiting. Nothing: it takes a call to know.
  std::optional<Acquired> TryAcquire(const ShareRef& ref, MapMode mode);
  // Acquires all or none. Shares that this process can find without a call need none; the others are requested in as
  // few requests as the broker's limits allow. Each request waits for its names.
  Result<std::vector<Acquired>> AcquireMany(std::span<const ShareRef> refs, const AcquireOptions& options);

  // Opens an end of a channel of this namespace; creates the channel if it does not exist. `capacity`: the maximum
  // number of queued shares. The first opener that states one determines it; 0 states none (the default is 16).
  // FAILED_PRECONDITION, CHANNEL_CAPACITY: the channel has another capacity. RESOURCE_EXHAUSTED: the broker's limits of
  // channels and of open ends.
  Result<Channel> OpenChannel(const std::string& name, Channel::Role role, const ChannelOptions& options);
  Result<Channel> OpenChannel(const std::string& name, Channel::Role role, uint64_t capacity = 0) {
    return OpenChannel(name, role, ChannelOptions{.capacity = capacity});
  }
  // Drops the shares queued in a channel of this namespace, and the channel if it has no open end. Returns the number
  // of shares. NOT_FOUND, CHANNEL_NOT_FOUND. `remove`: FAILED_PRECONDITION, CHANNEL_IN_USE, if an end is open.
  Result<uint64_t> DrainChannel(const std::string& name, bool remove = false);

  // Claims a name, so that one thread of all processes makes its share and the others wait. Returns the claim's number;
  // 0: a share of this name that is newer than `newer_than` is there. The claim ends when this Broker publishes the
  // name, by ReleaseClaim, with the connection, and `lifetime` after the last call with its number as `held`, if
  // another process asks for it then; lifetime 0: not by time. A daemon that continues another one must be told of it
  // by such a call. NOT_FOUND, NAME_CLAIMED: another thread holds the claim; after a wait DEADLINE_EXCEEDED.
  Result<uint64_t> Claim(const std::string& name, uint64_t newer_than, std::chrono::milliseconds wait,
                         std::chrono::milliseconds lifetime, uint64_t held = 0);
  Status ReleaseClaim(uint64_t claim);

  struct WatchOptions {
    std::vector<EventKind> kinds{};  // empty: all
    std::string name_prefix{};       // only events of shares whose names begin with it
  };
  // Opens a watch of events in this namespace and of this user's sessions, from now on. RESOURCE_EXHAUSTED:
  // limits.watchers, of which one user may have a part.
  Result<arraybridge::Watch> OpenWatch(const WatchOptions& options);

  // Returns the outcome of a call that failed with this status. The broker does not begin a request after its deadline,
  // so a call that failed was not executed, and its status is returned. The exception is a Put, Publish, Send or
  // Withdraw without an answer: the outcome is known when the answer arrives, and this function waits for it. It
  // returns `failed` if the answer does not arrive in time; it can be called again. UNAVAILABLE, OUTCOME_UNKNOWN: the
  // connection ended first, or this process made no such request; only the latest 256 requests that timed out are
  // remembered.
  Result<Outcome> OutcomeOf(const Status& failed, std::chrono::milliseconds timeout);

  // Reports how this process read a share that it has acquired by a call; replaces the note of that call. Does not
  // wait; what a busy broker does not accept is sent with the next release.
  void Note(const Share& share, std::string_view note);

  Status Withdraw(const ShareRef& ref);
  Result<std::vector<ListedShare>> List(const std::string& name_prefix = {});
  Result<Stats> GetStats();
  Result<ServerInfo> GetServerInfo();

  // Waits until all published bytes are complete, sends all pending releases and returns unused arenas. Returns when
  // the daemon has answered, then continues as Confirm.
  Status Flush();
  // For use before a process ends: waits until the daemon knows that all published bytes are complete. Returns at once
  // if they are. After the timeout, shares that are not complete are lost with the connection.
  Status Settle();
  // Waits until the broker has processed all publishes without waiting. Returns their first error, with the name of the
  // share and the number of further errors; ABORTED, PUBLISH_LOST if the connection ended before. Returns at once if
  // there are none. If the Broker is destroyed without Confirm, errors are not reported, but publishes in the queue are
  // still executed.
  Status Confirm();
  ClientStats client_stats() const;

 private:
  friend class BornHeap;
  friend class TierCalls;
  class Core;
  std::shared_ptr<Connection> connection();
  std::shared_ptr<Core> core_;
};

}  // namespace arraybridge

// Broker is a client's connection to arraybridged: put arrays in, get arrays out, without copying more than once.
// Connects on first need and again after the daemon restarted; thread-safe; survives fork (the child gets a connection
// of its own). Depends on libc and libstdc++ alone.
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
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/channel.h>
#include <arraybridge/share.h>
#include <arraybridge/view.h>
#include <arraybridge/watch.h>

#include "proto/boundary/result.h"

namespace arraybridge {

class Session;

struct ServerInfo {
  std::string version;
  std::string broker_id;  // 16 bytes
  uint32_t protocol_min = 0;
  uint32_t protocol_max = 0;
  uint64_t uptime_ms = 0;
};

struct Stats {
  uint64_t sessions = 0, leases = 0, shares = 0, withdrawn_shares = 0, arenas = 0, charged_bytes = 0, tickets = 0,
           waiting = 0, dying_arenas = 0, sessions_total = 0, publishes_total = 0, acquires_total = 0,
           refusals_total = 0, sessions_cut_total = 0, pending_fences = 0, lost_fences_total = 0;
  uint64_t holds = 0;          // taken without a call
  uint64_t pinned_bytes = 0;   // of withdrawn shares that holds alone keep
  uint64_t channels = 0;       // that somebody has open
  uint64_t queued_shares = 0;  // sent, received by nobody yet
  uint64_t watchers = 0;       // that somebody has open
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

// What this process holds; for tests and for the curious.
struct ClientStats {
  uint64_t arenas_written = 0;  // arenas of this session
  uint64_t arena_bytes = 0;
  uint64_t arenas_mapped = 0;  // arenas mapped for reading
  uint64_t live_leases = 0;
  uint64_t pending_releases = 0;
  uint64_t holds_taken = 0;         // of all acquires so far: without a call
  uint64_t unwaited_publishes = 0;  // so far
  uint64_t direct_shares = 0;       // sent into channels, or received, so far: without a call
};

// What became of a request whose caller was told that time was up.
struct Outcome {
  Status status{};               // OK: it was done; else why it was not
  std::optional<Share> share{};  // of a Publish that was done
};

class Broker {
 public:
  struct Options {
    // The directory of the daemon's sockets, or the path of a lifeline socket.
    std::string address{};
    std::string ns = "default";
    std::chrono::milliseconds timeout{10000};  // of every call that names none
    std::string client{};                      // a name to show, at most 64 bytes
    // Asked ten times a second by a thread that waits for the broker, without any lock; true ends its call with
    // CANCELLED.
    std::function<bool()> interrupted{};
    // A thread that waits for an answer looks for it so long, yielding the processor, before it sleeps. 0: it sleeps
    // at once.
    std::chrono::microseconds spin{30};
    // The path of the CUDA driver library; empty: the system's libcuda.so.1. The first in a process that uses it
    // decides.
    std::string cuda_driver{};
    // What was read stays mapped for the next Acquire, until it has not been used for as long as the broker says. While
    // more arenas than this are mapped for reading, or more bytes, those that no array uses go before that, the least
    // recently used first. Each of host memory costs a descriptor, each of a GPU's keeps its memory.
    uint64_t read_arenas_max = 256;
    uint64_t read_bytes_max = uint64_t{64} << 30;
    // Shares are found and held without calls where that is possible. False: every Acquire is a call.
    bool holds = true;
    // Send to, and receive from, one process without calls, where that is possible (docs/fast-path.md).
    bool direct_channels = true;
    // A secret that the operator gave to those whom a namespace is open to, beside what their user opens; at most 256
    // bytes. Calls that name a namespace which neither opens are refused with PERMISSION_DENIED.
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
    // Nobody can write the bytes any more, not even this process: the placement's views become invalid.
    // REQUIRES: placed with `own`, and no view of it in use: FAILED_PRECONDITION otherwise.
    bool sealed = false;
    std::string structure{};
    std::string metadata{};
    // For who traces the share: how its bytes came. UTF-8 of at most 64 bytes (limits.note_bytes_max).
    std::string note{};
    // False: the call does not wait for the broker's answer, where the share is host memory under a new name. Every
    // process finds it from then on; what is told of them has no id and no generation. Whatever has to go another
    // way is waited for all the same. What fails, NAME_TAKEN for instance, is told by the next Flush, Confirm or
    // Publish of this kind, which then does nothing else. REQUIRES: a name.
    bool wait = true;
    // So long after its publication the share loses its name by itself, or before if its namespace says less. 0: when
    // that says.
    std::chrono::milliseconds lifetime{0};
  };
  struct PlaceOptions {
    bool own = false;                // an arena of its own, as Publish with `sealed` needs; host memory only
    std::optional<Device> device{};  // the host, or a GPU by UUID or by this process's number for it
    PublishOptions purpose{};        // what Publish will be told
  };
  // Writable memory for arrays of these specs (offsets and strides are ignored and chosen here), in one range on
  // `device`, the host unless given. Waits for room until the timeout, then RESOURCE_EXHAUSTED; INVALID_ARGUMENT before
  // that if the broker would not publish it for that purpose. Of a GPU: FAILED_PRECONDITION if it is not visible here,
  // UNAVAILABLE without a driver.
  Result<Placement> Empty(std::span<const ArraySpec> specs, const PlaceOptions& options);
  Result<Placement> Empty(std::span<const ArraySpec> specs, bool own = false, const Device& device = {}) {
    return Empty(specs, {.own = own, .device = device, .purpose = {}});
  }
  // Empty, and a copy of each view into it; on the device where they lie, unless one is given: all on one,
  // INVALID_ARGUMENT otherwise. Copies from a GPU come after what each view's producer has queued on its stream. They
  // are done on return, but for those that may come later on that stream (View::stream_is_producers): of these the
  // placement keeps the source. From one GPU to another they go by the host. Views of a GPU are compact row-major:
  // UNIMPLEMENTED otherwise.
  Result<Placement> Place(std::span<const View> sources, const PlaceOptions& options);
  Result<Placement> Place(std::span<const View> sources, bool own = false) {
    return Place(sources, {.own = own, .device = {}, .purpose = {}});
  }
  Result<Placement> Place(std::span<const View> sources, bool own, const Device& device) {
    return Place(sources, {.own = own, .device = device, .purpose = {}});
  }
  // Of GPU memory: what the streams that the placement's views name have to do, and the copies of Place, may be still
  // to come: then readers wait for an event, and this process tells the broker when they need not any more; it waits
  // itself where events do not work. A process that ends before loses the share, so destroy the Broker, or Settle,
  // before an exit. REQUIRES: what else writes to the placement has ended.
  Result<Share> Publish(const Placement& placement, const PublishOptions& options);
  // Place and Publish: copies of `sources`, which lie in host memory or on one device. The quickest way for host
  // arrays, since no Placement is made for what nobody will write; with `wait = false` and a new name, nobody is asked
  // either.
  Result<Share> Put(std::span<const View> sources, const PublishOptions& options);
  // Publishes a range that holds `views` already, if all of them lie, 256-byte aligned and compact, in one placement of
  // this session that is not yet published. NOT_FOUND if not: then Place them.
  Result<Placement> PlacementOf(std::span<const View> views);

  struct AcquireOptions {
    MapMode mode = MapMode::kShared;
    // For a name that is not there; then DEADLINE_EXCEEDED. 0: NOT_FOUND at once. For bytes that a GPU is still
    // writing, where this process cannot wait for that itself: five seconds or `timeout`, if that is less; then
    // DEADLINE_EXCEEDED, FENCE_PENDING.
    std::chrono::milliseconds wait{0};
    // For who traces the share: how it will be read. As PublishOptions::note. Holds, which cost no call, are not told.
    std::string note{};
  };
  Result<Acquired> Acquire(const ShareRef& ref, const AcquireOptions& options);
  Result<Acquired> Acquire(const ShareRef& ref) { return Acquire(ref, AcquireOptions{}); }
  // The same without a call and without waiting. Nothing: only a call can tell.
  std::optional<Acquired> TryAcquire(const ShareRef& ref, MapMode mode);
  // All or none. What this process can find without a call costs none; the rest is asked for in as few requests as the
  // broker takes, each of which waits for its names.
  Result<std::vector<Acquired>> AcquireMany(std::span<const ShareRef> refs, const AcquireOptions& options);

  // One end of a channel of this namespace, which is made if it is not there. `capacity`: shares that wait in it at
  // most; the first that says one decides, 0 says none (16 if nobody does). FAILED_PRECONDITION, CHANNEL_CAPACITY: it
  // has another one; RESOURCE_EXHAUSTED: the broker's limits of channels and of open ends.
  Result<Channel> OpenChannel(const std::string& name, Channel::Role role, uint64_t capacity = 0);

  struct WatchOptions {
    std::vector<EventKind> kinds{};  // none: all
    std::string name_prefix{};       // of shares whose names start so; what has no share is not told then
  };
  // What happens from now on in this namespace, and to this user's sessions. RESOURCE_EXHAUSTED: limits.watchers,
  // limits.watchers_per_uid.
  Result<arraybridge::Watch> OpenWatch(const WatchOptions& options);

  // What became of what failed with this status. A request that is not answered in time is not begun later, unless the
  // broker was just about to; so a call that failed was not done, and this returns its status, except for a Put,
  // Publish, Send or Withdraw that no answer came to: of these it is known when the answer comes. Waits for that; then
  // `failed` again: it may be asked for again. UNAVAILABLE, OUTCOME_UNKNOWN: the connection ended first, or this
  // process made no such request; the latest 256 of those that were given up are remembered.
  Result<Outcome> OutcomeOf(const Status& failed, std::chrono::milliseconds timeout);

  // How this process came to read a share that it has acquired by a call, in place of the note of that call. Does not
  // wait; what a busy broker does not take is said with the next release.
  void Note(const Share& share, std::string_view note);

  Status Withdraw(const ShareRef& ref);
  Result<std::vector<ListedShare>> List(const std::string& name_prefix = {});
  Result<Stats> GetStats();
  Result<ServerInfo> GetServerInfo();

  // Waits for what was published and is not there yet, sends every pending release and gives back what nobody uses;
  // returns when the daemon has answered. Then as Confirm.
  Status Flush();
  // Before a process ends: the daemon has been told that what was published is there. At once if all of it is; what is
  // not until the timeout is looked after no more, and lost with the connection.
  Status Settle();
  // Waits until the broker has taken what was published without waiting. The first error of that, with its share's name
  // and how many more there were; ABORTED, PUBLISH_LOST, if the connection ended before. At once if there is nothing.
  // Whoever destroys the Broker without asking is not told of errors; what stands in the ring is published all the
  // same.
  Status Confirm();
  ClientStats client_stats() const;

 private:
  class Core;
  Result<std::shared_ptr<Session>> ConnectedSession();
  std::shared_ptr<Core> core_;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/broker.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include <arraybridge/bundle.h>
#include <arraybridge/device.h>

#include "client/arenas/placement_range.h"
#include "client/channels/channel.h"
#include "client/memory/cuda/cuda_capture.h"
#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/cuda/cuda_vmm_mapper.h"
#include "client/process/fork_guard.h"
#include "client/session/connection.h"
#include "client/shares/acquire.h"
#include "client/shares/forward.h"
#include "client/shares/placement.h"
#include "client/shares/put.h"
#include "proto/boundary/fence.h"
#include "proto/boundary/share_limits.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The broker ends a wait; the client's deadline is this much later and only detects a broker that does not answer.
constexpr milliseconds kAnswerGrace{1000};

// The broker's deadline for unfinished bytes is shorter than the client's, so that its error, which names the producer,
// arrives first. 0: the broker's default.
uint64_t FenceTimeoutOf(milliseconds timeout) {
  const milliseconds wait = timeout - std::min(timeout / 4, kAnswerGrace);
  return wait >= kFenceWait ? 0 : static_cast<uint64_t>(std::max<int64_t>(wait.count(), 1));
}

// Ids start again with each life of the broker, so an id of another life would refer to a different share.
Status CheckLife(const Session& session, std::span<const ShareRef> refs) {
  for (const ShareRef& ref : refs) {
    if (ref.id == 0 || ref.broker_id.empty() || ref.broker_id == session.server().info.broker_id) continue;
    return NotFound("share ", ref.id, " belongs to another life of the broker");
  }
  return Ok();
}

Broker::Options WithinReason(Broker::Options options) {
  options.timeout = std::clamp<milliseconds>(options.timeout, milliseconds(0), kLongestTime);
  return options;
}

// Memory that other processes or earlier shares may free.
bool MemoryMayBeFreed(const Status& status) {
  const std::string& why = status.reason();
  return status.code() == Code::kResourceExhausted &&
         (why == "QUOTA_EXCEEDED" || why == "DEVICE_FULL" || why == "SYSTEM_MEMORY" || why == "WAITED_IN_VAIN");
}

}  // namespace

// The Connection of this process. A forked child never touches its parent's Connection. It leaks it, because arrays of
// the parent point into it, and makes its own on first use.
class Broker::Core : public ForkParticipant {
 public:
  explicit Core(Options options) : options_(WithinReason(std::move(options))) { JoinForkGuard(this); }
  ~Core() override { LeaveForkGuard(this); }

  const Options& options() const { return options_; }
  Deadline Timeout() const { return steady_clock::now() + options_.timeout; }

  // Acquires without a request. Returns nothing if a request is needed.
  std::optional<Acquired> TryAcquire(const ShareRef& ref, MapMode mode) const;
  // Acquires all shares or none, in as many requests as needed.
  Result<std::vector<Acquired>> Acquire(std::span<const ShareRef> refs, const AcquireOptions& options, Deadline until);
  Result<uint64_t> Withdraw(const std::string& request, std::span<const ShareRef> refs);
  // Makes room for the arrays on `device`, which another process may have named.
  Result<Placement> Allocate(const Device& device, std::vector<View> arrays, const PlaceOptions& options);

  std::shared_ptr<Connection> connection() {
    if (auto known = known_connection()) return known;
    auto fresh = Connection::Make(options_);  // joins the fork guard, so the lock must not be held
    MutexLock lock(mutex_);
    if (!connection_) connection_ = std::move(fresh);
    return connection_;
  }
  std::shared_ptr<Connection> known_connection() const {
    MutexLock lock(mutex_);
    return connection_;
  }

  void BeforeFork() noexcept override { Lock(); }
  void AfterForkInParent(int /*child_life*/) noexcept override { Unlock(); }
  void AfterForkInChild() noexcept override {
    Forget();
    Unlock();
  }

 private:
  // Acquires the first of `refs`, as many as the broker accepts in one request.
  Result<std::vector<Acquired>> AcquireSome(std::span<const ShareRef> refs, const AcquireOptions& options,
                                            Deadline until);
  // Held from one fork handler to the next, which the thread-safety analysis cannot follow.
  void Lock() AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void Unlock() AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void Forget() AB_THREAD_ANNOTATION(no_thread_safety_analysis);

  const Options options_;
  mutable Mutex mutex_;
  std::shared_ptr<Connection> connection_ AB_GUARDED_BY(mutex_);
};

Broker::Broker(Options options) : core_(std::make_shared<Core>(std::move(options))) {}
Broker::~Broker() = default;
Broker::Broker(Broker&&) noexcept = default;
Broker& Broker::operator=(Broker&&) noexcept = default;

void Broker::Core::Lock() { mutex_.lock(); }

void Broker::Core::Unlock() { mutex_.unlock(); }

void Broker::Core::Forget() {
  static auto* const inherited = new std::vector<std::shared_ptr<Connection>>;
  if (connection_) inherited->push_back(std::move(connection_));
  connection_ = nullptr;
}

std::optional<Acquired> Broker::Core::TryAcquire(const ShareRef& ref, MapMode mode) const {
  if (!options_.catalogue || ref.id != 0) return std::nullopt;
  const auto connection = known_connection();
  const auto session = connection ? connection->current() : nullptr;
  if (!session) return std::nullopt;
  return arraybridge::TryAcquire(*session, options_.ns, ref, mode);
}

const Broker::Options& Broker::options() const { return core_->options(); }

Result<Placement> Broker::Core::Allocate(const Device& device, std::vector<View> arrays, const PlaceOptions& options) {
  const auto at = connection();
  AB_ASSIGN_OR_RETURN(const auto local, at->mappers().Local(device));
  const auto timeout = std::min(options_.timeout, options.timeout.value_or(options_.timeout));
  // Before memory is allocated for it.
  if (options.pinned) AB_RETURN_IF_ERROR(CudaDevices::OfThisProcess(options_.cuda_driver).status());
  return arraybridge::Allocate(*at, options_.ns, local, std::move(arrays), {options.own, options.pinned},
                               options.publish, {options_.timeout, timeout});
}

Result<Placement> Broker::Empty(std::span<const ArraySpec> specs, const PlaceOptions& options) {
  std::vector<View> arrays;
  arrays.reserve(specs.size());
  for (const ArraySpec& spec : specs) {
    if (const auto bytes = spec.compact_bytes(); !bytes.ok()) return bytes.status();
    View& array = arrays.emplace_back();
    array.type = spec.type;
    array.dtype = spec.dtype;
    array.shape = spec.shape;
  }
  return core_->Allocate(options.device.value_or(Device{}), std::move(arrays), options);
}

Result<Placement> Broker::Place(std::span<const View> sources, const PlaceOptions& options) {
  if (sources.empty()) return InvalidArgument("a share needs at least one array");
  const Device& first = sources.front().device;
  std::vector<View> arrays;
  arrays.reserve(sources.size());
  for (const View& source : sources) {
    if (!options.device && (source.device.type != first.type || source.device.id != first.id)) {
      return InvalidArgument("the arrays of one share must lie on one device, not on (", first.type, ", ", first.id,
                             ") and (", source.device.type, ", ", source.device.id, ")");
    }
    View& array = arrays.emplace_back();
    array.type = source.type;
    array.dtype = source.dtype;
    array.shape = source.shape;
  }
  auto placement = core_->Allocate(options.device.value_or(first), std::move(arrays), options);
  if (!placement.ok()) return placement;
  // Checks all sources before queuing the first copy. Otherwise a graph that is being captured would contain copies
  // into a share that is never published.
  AB_RETURN_IF_ERROR(CheckProducersNotCaptured(sources));
  WrittenArena& arena = *placement->range()->arena;
  const bool upload = arena.device.type == kDeviceCuda && AllOnHost(sources);
  if (upload) {
    AB_RETURN_IF_ERROR(CopyToGpus(sources, placement->described()));
    return placement;
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto* const at = static_cast<const std::byte*>(placement->described()[i].data);
    if (at == nullptr) continue;
    const auto offset = static_cast<uint64_t>(at - arena.data());
    AB_ASSIGN_OR_RETURN(const auto queued, arena.mapping().QueueCopyFrom(sources[i], offset));
    if (queued) placement->range()->queued.push_back({*sources[i].stream, sources[i].owner});
  }
  return placement;
}

Result<Share> Broker::Publish(const Placement& placement, const PublishOptions& options) {
  AB_RETURN_IF_ERROR(CheckText("a share's name", options.name));
  AB_RETURN_IF_ERROR(Bundle::CheckContent(options.structure, placement.described()));
  const Deadline deadline = core_->Timeout();
  const auto connection = core_->connection();
  if (!options.wait) {
    if (options.name.empty()) return InvalidArgument("an unwaited publish needs a name");
    AB_RETURN_IF_ERROR(connection->TakeDeferredErrors());
  }
  AB_ASSIGN_OR_RETURN(auto session, connection->Connected(deadline));
  if (!placement.forward() && placement.range()->releases.get() != &session->releases()) {
    return Unavailable("the memory of this placement ended with an earlier connection; place it again")
        .Because("PLACEMENT_LOST");
  }
  const auto publish = placement.forward() ? PublishForward : PublishPlacement;
  auto published = publish(*session, core_->options().ns, placement, options, deadline, {});
  if (published.ok() || options.wait) return published;
  // The queue delivered the unwaited publishes first, so their errors are reported first.
  session->unwaited().Confirm();
  return connection->AfterDeferredErrors(options.name, published.status());
}

Result<Share> Broker::Put(std::span<const View> sources, const PublishOptions& options) {
  AB_RETURN_IF_ERROR(CheckText("a share's name", options.name));
  AB_RETURN_IF_ERROR(Bundle::CheckContent(options.structure, sources));
  const auto connection = core_->known_connection();
  const auto session = connection ? connection->current() : nullptr;
  if (session && !session->lifeline().lost()) {
    if (options.forward && !options.sealed) {
      if (const auto forward = FindForward(*session, sources)) {
        auto share = Publish(*forward, options);
        if (share.ok() || !IsNotForwarded(share.status())) return share;
      }
    }
    if (!options.wait) AB_RETURN_IF_ERROR(connection->TakeDeferredErrors());
    auto share = PutInOneStep(*session, core_->options().ns, sources, options, core_->options().timeout);
    if (share) return *std::move(share);
  }
  for (bool again = true;; again = false) {
    AB_ASSIGN_OR_RETURN(const auto placement,
                        Place(sources, {.own = options.sealed, .device = {}, .publish = options}));
    auto share = Publish(placement, options);
    // The daemon that took over has lost the memory of the copy; the sources are still here.
    if (share.ok() || !again || share.status().reason() != "MEMORY_LOST") return share;
  }
}

std::optional<Placement> Broker::PlacementOf(std::span<const View> views, std::string_view* why, bool joins) {
  if (why != nullptr) *why = {};
  const auto connection = core_->known_connection();
  const auto session = connection ? connection->current() : nullptr;
  if (!session || session->lifeline().lost()) return std::nullopt;
  if (auto placement = FindPlacement(*session, views, joins)) return placement;
  return FindForward(*session, views, why);
}

Result<Broker::Passed> Broker::Send(Channel& channel, std::span<const View> sources, Channel::SendOptions options,
                                    bool in_place) {
  const std::optional<Deadline> until = DeadlineAfter(options.timeout);
  const auto note_time_left = [&] {
    if (until) options.timeout = TimeUntil(until);
  };
  if (!options.seen_notice) options.seen_notice = channel.seen_notice();
  // A share that the broker would refuse is refused before the copy.
  PlaceOptions place;
  place.publish.structure = options.structure;
  place.publish.metadata = options.metadata;
  for (bool copies = false, again = true;;) {
    auto there = copies ? std::nullopt : PlacementOf(sources, nullptr, in_place);
    if (there && !there->forward() && !in_place) there.reset();
    const Passed how = !there ? Passed::kCopied : there->forward() ? Passed::kForwarded : Passed::kInPlace;
    if (!there && channel.TrySend(sources, options)) return how;
    place.timeout = options.timeout;
    const auto placement = there ? Result<Placement>(*std::move(there)) : Place(sources, place);
    note_time_left();
    const bool is_over = options.timeout && options.timeout->count() == 0;
    if (!placement.ok() && MemoryMayBeFreed(placement.status()) && !is_over) {
      AB_RETURN_IF_ERROR(channel.Check(options.on_peer_death, &*options.seen_notice));
      continue;
    }
    if (!placement.ok()) return placement.status();
    const Status sent = channel.Send(*placement, options);
    if (sent.ok()) return how;
    // Another thread has published the arrays that were born there, or their share is gone: now they are copied like
    // any other.
    copies = how != Passed::kCopied && (sent.reason() == "PLACEMENT_PUBLISHED" || IsNotForwarded(sent));
    // As in Put, once.
    const bool lost = how == Passed::kCopied && sent.reason() == "MEMORY_LOST" && std::exchange(again, false);
    if (!copies && !lost) return sent;
    note_time_left();
  }
}

std::optional<Acquired> Broker::TryAcquire(const ShareRef& ref, MapMode mode) { return core_->TryAcquire(ref, mode); }

Result<Acquired> Broker::Acquire(const ShareRef& ref, const AcquireOptions& options) {
  if (auto held = TryAcquire(ref, options.mode)) return *std::move(held);
  AB_ASSIGN_OR_RETURN(auto acquired, core_->Acquire({&ref, 1}, options, DeadlineAfter(options.wait)));
  return std::move(acquired.front());
}

// Keeps the shares found in the catalogue while it requests the others.
Result<std::vector<Acquired>> Broker::AcquireMany(std::span<const ShareRef> refs, const AcquireOptions& options) {
  const auto until = DeadlineAfter(options.wait);
  std::vector<std::optional<Acquired>> found;
  std::vector<ShareRef> missing;
  found.reserve(refs.size());
  for (const ShareRef& ref : refs) {
    found.push_back(core_->TryAcquire(ref, options.mode));
    if (!found.back()) missing.push_back(ref);
  }
  AB_ASSIGN_OR_RETURN(auto granted, core_->Acquire(missing, options, until));
  std::vector<Acquired> all;
  all.reserve(refs.size());
  auto next = granted.begin();
  for (std::optional<Acquired>& held : found) all.push_back(held ? *std::move(held) : std::move(*next++));
  return all;
}

Result<std::vector<Acquired>> Broker::Core::Acquire(std::span<const ShareRef> refs, const AcquireOptions& options,
                                                    Deadline until) {
  for (const ShareRef& ref : refs) AB_RETURN_IF_ERROR(CheckText("a share's name", ref.name));
  std::vector<Acquired> all;
  all.reserve(refs.size());
  while (!refs.empty()) {
    AB_ASSIGN_OR_RETURN(auto some, AcquireSome(refs, options, until));
    std::ranges::move(some, std::back_inserter(all));
    refs = refs.subspan(some.size());
  }
  return all;
}

Result<std::vector<Acquired>> Broker::Core::AcquireSome(std::span<const ShareRef> refs, const AcquireOptions& options,
                                                        Deadline until) {
  const auto from = connection();
  // One deadline covers connecting, the request, the wait and the mapping: the timeout of any call, or the caller's
  // wait for the names if that is longer.
  const Deadline answer_due = options.wait.count() > 0 ? until + kAnswerGrace : until;
  const Deadline deadline = std::max(steady_clock::now() + options_.timeout, answer_due);
  for (bool again = true, drops = true;;) {
    AB_ASSIGN_OR_RETURN(auto session, from->Connected(deadline));
    AB_RETURN_IF_ERROR(CheckLife(*session, refs));
    const codec::Limits& limits = session->server().limits;
    const auto some = limits.names_per_request_max == 0
                          ? refs
                          : refs.first(std::min<size_t>(refs.size(), limits.names_per_request_max));
    // The broker limits the wait of one request, so a longer wait takes several requests. If connecting has used up the
    // wait, the request still waits for 1 ms, so that it fails with a timeout.
    const milliseconds least(options.wait.count() > 0 ? 1 : 0);
    const milliseconds left = std::max(least, session->SliceOf(until, kLongestTime));
    const AcquireWaits waits{static_cast<uint64_t>(left.count()), FenceTimeoutOf(options_.timeout), deadline};
    auto acquired =
        arraybridge::Acquire(*session, options_.ns, some, options.mode, waits, session->NoteFor(options.note));
    if (acquired.ok()) return acquired;
    const Status& why = acquired.status();
    const bool not_sent = again && why.reason() == Lifeline::kNotSent;
    const bool not_there = why.code() == Code::kDeadlineExceeded || why.code() == Code::kNotFound;
    // The broker may not know yet what this process has dropped.
    const bool pinned = why.reason() == "PINNED_BYTES" && std::exchange(drops, false);
    if (pinned && from->reclaimer().Collect(deadline)) static_cast<void>(session->releases().Sync({}, deadline));
    if (not_sent) again = false;
    if (!not_sent && !pinned && (!not_there || steady_clock::now() >= until)) return acquired;
  }
}

Result<Channel> Broker::OpenChannel(const std::string& name, Channel::Role role, const ChannelOptions& options) {
  AB_RETURN_IF_ERROR(CheckText("a channel's name", name));
  AB_RETURN_IF_ERROR(CheckText("a channel's run", options.run));
  wire::OpenChannelRequest message{.namespace_ = core_->options().ns,
                                   .name = name,
                                   .role = static_cast<wire::OpenChannelRequest::Role>(role),
                                   .capacity = options.capacity,
                                   .mode = static_cast<wire::ChannelMode>(options.mode),
                                   .replay = options.replay,
                                   .run = options.run,
                                   .fresh = options.fresh};
  if (options.on_slow != OnSlow::kAsIs) message.drop_oldest = options.on_slow == OnSlow::kDropOldest;
  // The broker opens the end even if the caller has given up, and other clients would wait for it.
  const auto late = [](Session& session, const wire::OpenChannelResponse& opened) {
    Channel::End::AbandonById(session, opened.channel, std::nullopt);
  };
  AB_ASSIGN_OR_RETURN(auto opened, core_->connection()->Ask<wire::OpenChannelResponse>(
                                       Verb::kOpenChannel, wire::Encode(message), core_->Timeout(), late));
  Channel channel(std::make_shared<Channel::End>(opened.second, core_->options(), name, role, opened.first));
  if (options.run.empty() || opened.first.keeps_runs) return channel;
  return FailedPrecondition("this broker is older than runs of channels: leave out the run, or upgrade it");
}

Result<uint64_t> Broker::Claim(const std::string& name, uint64_t newer_than, milliseconds wait, milliseconds lifetime,
                               uint64_t held) {
  AB_RETURN_IF_ERROR(CheckText("a claimed name", name));
  const wire::ClaimRequest request{.namespace_ = core_->options().ns,
                                   .name = name,
                                   .newer_than = newer_than,
                                   .timeout_ms = static_cast<uint64_t>(wait.count()),
                                   .lifetime_ms = static_cast<uint64_t>(lifetime.count()),
                                   .claim = held};
  const auto late = [](Session& session, const wire::ClaimResponse& claimed) {
    const wire::ClaimRequest release{.claim = claimed.claim, .release = true};
    static_cast<void>(session.lifeline().Post(Verb::kClaim, wire::Encode(release)));
  };
  const Deadline deadline = std::max(core_->Timeout(), DeadlineAfter(wait) + kAnswerGrace);
  AB_ASSIGN_OR_RETURN(
      auto claimed, core_->connection()->Ask<wire::ClaimResponse>(Verb::kClaim, wire::Encode(request), deadline, late));
  return claimed.first.claim;
}

Status Broker::ReleaseClaim(uint64_t claim) {
  const wire::ClaimRequest request{.claim = claim, .release = true};
  return core_->connection()->Call(Verb::kClaim, wire::Encode(request), core_->Timeout()).status();
}

std::shared_ptr<Connection> Broker::connection() { return core_->connection(); }

void Broker::Note(const Share& share, std::string_view note) {
  const auto connection = core_->known_connection();
  const auto session = connection ? connection->current() : nullptr;
  if (!session || share.id == 0 || share.broker_id != session->server().info.broker_id) return;
  codec::Release release;
  release.own_notes.emplace_back(share.id, session->NoteFor(note));
  session->releases().Post(std::move(release));
}

Result<Outcome> Broker::OutcomeOf(const Status& failed, milliseconds timeout) {
  AB_CHECK(!failed.ok());
  return core_->connection()->OutcomeOf(failed, DeadlineAfter(timeout));
}

// Returns the number of shares.
Result<uint64_t> Broker::Core::Withdraw(const std::string& request, std::span<const ShareRef> refs) {
  const auto late = [](Session& session, const wire::WithdrawResponse& withdrawn) {
    session.written().Return(withdrawn.returned);
  };
  const auto check = [&](const Session& session) { return CheckLife(session, refs); };
  AB_ASSIGN_OR_RETURN(auto withdrawn,
                      connection()->Ask<wire::WithdrawResponse>(Verb::kWithdraw, request, Timeout(), late, check));
  late(*withdrawn.second, withdrawn.first);
  return uint64_t{withdrawn.first.withdrawn};
}

Status Broker::Withdraw(const ShareRef& ref) {
  AB_RETURN_IF_ERROR(CheckText("a share's name", ref.name));
  const wire::WithdrawRequest request{.namespace_ = core_->options().ns, .shares = codec::RefsOf({&ref, 1})};
  return core_->Withdraw(wire::Encode(request), {&ref, 1}).status();
}

Result<uint64_t> Broker::DrainChannel(const std::string& name, bool remove) {
  AB_RETURN_IF_ERROR(CheckText("a channel's name", name));
  const wire::WithdrawRequest request{.namespace_ = core_->options().ns, .channel = name, .remove = remove};
  return core_->Withdraw(wire::Encode(request), {});
}

Result<std::vector<ListedShare>> Broker::List(const std::string& name_prefix) {
  AB_RETURN_IF_ERROR(CheckText("a prefix", name_prefix));
  const Deadline deadline = core_->Timeout();
  const auto connection = core_->connection();
  std::vector<ListedShare> all;
  std::string token;
  do {
    const std::string request = wire::Encode(
        wire::ListRequest{.namespace_ = core_->options().ns, .name_prefix = name_prefix, .page_token = token});
    AB_ASSIGN_OR_RETURN(const auto answered, connection->Call(Verb::kList, request, deadline));
    AB_ASSIGN_OR_RETURN(auto page, codec::DecodeListed(answered.first.payload));
    if (page.next_page_token == token && !token.empty()) return Internal("the broker listed the same page twice");
    token = std::move(page.next_page_token);
    for (ListedShare& listed : page.shares) {
      listed.share.broker_id = answered.second->server().info.broker_id;
      all.push_back(std::move(listed));
    }
  } while (!token.empty());
  return all;
}

Result<Stats> Broker::GetStats() {
  AB_ASSIGN_OR_RETURN(const auto answered, core_->connection()->Call(Verb::kGetStats, {}, core_->Timeout()));
  return codec::DecodeStats(answered.first.payload);
}

Result<ServerInfo> Broker::GetServerInfo() {
  AB_ASSIGN_OR_RETURN(const auto answered, core_->connection()->Call(Verb::kGetServerInfo, {}, core_->Timeout()));
  AB_ASSIGN_OR_RETURN(const auto reply, codec::Read<wire::GetServerInfoResponse>(answered.first.payload));
  return codec::ServerOf(reply).info;
}

Status Broker::Flush() {
  const auto connection = core_->known_connection();
  if (!connection) return Ok();
  const Deadline deadline = core_->Timeout();
  AB_RETURN_IF_ERROR(connection->Flush(deadline));
  return connection->Confirm(deadline);
}

Status Broker::Settle() {
  const auto connection = core_->known_connection();
  const auto session = connection ? connection->current() : nullptr;
  if (!session) return Ok();
  Status settled = session->lifeline().lost() ? Ok() : session->releases().SyncFences(core_->Timeout());
  // The caller may be about to exit, and no thread of this library may call a driver that is shutting down.
  session->fences().GiveUp();
  return settled;
}

Status Broker::Confirm() {
  const auto connection = core_->known_connection();
  return connection ? connection->Confirm(core_->Timeout()) : Ok();
}

ClientStats Broker::client_stats() const {
  ClientStats stats;
  stats.writable_gpu_maps = MapsThatReadersMayWrite();
  const auto connection = core_->known_connection();
  if (!connection) return stats;
  stats.pending_releases = connection->reclaimer().pending();
  const auto session = connection->current();
  if (!session) return stats;
  stats.live_leases = session->releases().leases();
  stats.arenas_written = session->written().count();
  stats.arena_bytes = session->written().bytes();
  stats.arenas_mapped = session->read().count();
  stats.catalogue_acquires = session->hazards().taken();
  stats.unwaited_publishes = session->unwaited().submitted();
  stats.direct_shares = session->direct_producers().shares();
  return stats;
}

}  // namespace arraybridge

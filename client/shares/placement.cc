// SPDX-License-Identifier: Apache-2.0
#include "client/shares/placement.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include <arraybridge/device.h>
#include <arraybridge/device_blocks/kept_arrays.h>

#include "client/arenas/placement_range.h"
#include "client/joints/joint_range.h"
#include "client/memory/cuda/cuda_fence.h"
#include "client/shares/publish_limits.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Placement::Placement(std::shared_ptr<Range> range, std::vector<View> views)
    : range_(std::move(range)), views_(std::move(views)) {}

const std::vector<View>& Placement::views() const {
  if (range_) range_->handed_out.store(true);
  return views_;
}

namespace {

// How many times the broker may answer with returned ranges that do not fit, before the call fails.
constexpr int kCarvesMax = 8;
// The poll interval of a thread that waits for memory while receivers hold ranges that they return without a message.
constexpr uint64_t kDirectPollMs = 10;

// The bytes that the array occupies in its range, in whole granules. 0 if it is empty or if the size overflows.
uint64_t BytesInRange(const View& array) {
  const uint64_t bytes = array.nbytes();
  return bytes == 0 ? 0 : Carver::Granules(bytes);
}

}  // namespace

Result<uint64_t> RangeBytesOf(std::span<const View> arrays) {
  if (arrays.empty()) return InvalidArgument("a share needs at least one array");
  uint64_t bytes = 0;
  for (const View& array : arrays) {
    const uint64_t array_bytes = BytesInRange(array);
    if ((array_bytes == 0 && array.nbytes() > 0) || array_bytes > std::numeric_limits<uint64_t>::max() - bytes) {
      return InvalidArgument("the arrays have more than 2^64 bytes");
    }
    bytes += array_bytes;
  }
  return Carver::Granules(bytes);
}

Result<std::optional<Handle>> AskForArena(Session& session, std::string_view ns, const Device& device, uint64_t size,
                                          uint64_t timeout_ms, Deadline deadline) {
  const wire::AllocateRequest request{.namespace_ = ns,
                                      .device = wire::Device{.type = device.type, .uuid = device.uuid},
                                      .size = size,
                                      .timeout_ms = timeout_ms};
  // The session outlives the handler.
  const auto handler = [&session](const Result<Answer>& answer) {
    if (!answer.ok()) return;
    const auto allocated = codec::Read<wire::AllocateResponse>(answer->payload);
    if (!allocated.ok()) return;
    session.written().Return(allocated->returned);
    if (allocated->handle) session.releases().Post({{.arenas = {allocated->handle->arena}}});
  };
  AB_ASSIGN_OR_RETURN(auto answer, session.Call(Verb::kAllocate, wire::Encode(request), deadline, handler));
  AB_ASSIGN_OR_RETURN(const auto allocated, codec::Read<wire::AllocateResponse>(answer.payload));
  session.written().Return(allocated.returned);
  if (!allocated.handle) return std::optional<Handle>();
  AB_ASSIGN_OR_RETURN(auto handle, codec::HandleOf(*allocated.handle));
  handle.descriptor = std::move(answer.descriptor);
  return std::optional(std::move(handle));
}

namespace {

Result<WrittenArenas::Carving> MapAndCarve(Session& session, Handle handle, const Device& device, uint64_t bytes,
                                           const ArenaWish& wish, uint64_t continued, Deadline deadline) {
  const auto give_back = [&] { session.releases().Post({{.arenas = {handle.arena}}}); };
  if (handle.arena_size < bytes) {
    give_back();
    return Internal("the broker allocated ", handle.arena_size, " bytes instead of ", bytes);
  }
  if (handle.device.type != device.type || handle.device.uuid != device.uuid) {
    give_back();
    return Internal("the broker allocated memory on a device that was not requested");
  }
  handle.device = device;
  const auto mapper = session.mappers().Of(handle.kind);
  auto mapping = mapper.ok() ? (*mapper)->Map(handle, device, Access::kWrite) : mapper.status();
  Status ready = mapping.status();
  if (ready.ok() && wish.pinned) ready = (*mapping)->Pin();
  if (!ready.ok()) {
    mapping = ready;
    handle.descriptor.reset();
    give_back();
    return ready;
  }
  // When the broker seals the arena, this process may have a mapping only.
  handle.descriptor.reset();
  auto arena = std::make_shared<WrittenArena>(handle, *std::move(mapping), wish.own, wish.pinned);
  arena->continued = continued;
  // The next Publish follows this message and reports its errors. The deadline is needed because unwaited publishes of
  // other threads may fill the queue.
  const wire::MappedRequest mapped{.arena = handle.arena};
  AB_RETURN_IF_ERROR(session.lifeline().Post(Verb::kMapped, wire::Encode(mapped), deadline));
  return session.written().Add(std::move(arena), bytes);
}

// Tries in order: an existing arena; a new arena with room for later arrays; after a local reclaim, an existing arena;
// a wait for a new arena without more room. An error names the size of the last one.
Result<WrittenArenas::Carving> Carve(Connection& connection, Session& session, std::string_view ns,
                                     const Device& device, uint64_t bytes, const ArenaWish& wish,
                                     PlaceDeadlines& until) {
  bool reclaimed = false;
  for (int turn = 0; turn < kCarvesMax; ++turn) {
    session.reclaimer().CollectReady();
    session.PollDirectChannels();
    if (!wish.own) {
      // Whether another daemon has taken over. It may also do so after this look.
      if (device.type != kDeviceCpu && !Failpoint("takeover_unheard")) session.lifeline().ReadArrived();
      auto carving = session.written().Carve(device, bytes, session.lifeline().continued(), wish.pinned);
      if (carving) return *std::move(carving);
    }
    const uint64_t size = reclaimed ? bytes : session.written().NextSize(device, bytes, wish.own, wish.pinned);
    const bool looks = session.direct_producers().outstanding();
    const auto rest = std::chrono::floor<milliseconds>(until.memory() - steady_clock::now()).count();
    const uint64_t left = reclaimed && rest > 0 ? static_cast<uint64_t>(rest) : 0;
    const uint64_t wait = looks ? std::min(left, kDirectPollMs) : left;
    // The broker ends the wait; the client's later deadline only detects a broker that does not answer.
    const uint64_t continued = session.lifeline().continued();  // before: too old a number only wastes an arena
    auto handle = AskForArena(session, ns, device, size, wait, until.calls() + milliseconds(reclaimed ? 1000 : 0));
    if (handle.ok() && handle->has_value()) {
      return MapAndCarve(session, std::move(**handle), device, bytes, wish, continued, until.calls());
    }
    if (handle.ok()) continue;
    if (handle.status().code() == Code::kResourceExhausted && wait < left) {
      --turn;
      continue;
    }
    if (handle.status().code() != Code::kResourceExhausted || reclaimed) return handle.status();
    reclaimed = true;
    AB_RETURN_IF_ERROR(connection.Flush(until.calls()));
  }
  return ResourceExhausted("no contiguous room for ", bytes, " bytes in the arenas of this session");
}

void LayOut(std::vector<View>& arrays, const std::shared_ptr<Placement::Range>& range) {
  std::byte* next = range->data();
  for (View& array : arrays) {
    const uint64_t array_bytes = BytesInRange(array);
    array.data = array_bytes == 0 ? nullptr : next;
    next += array_bytes;
    if (array.dtype.empty()) array.dtype = NameOf(array.type);
    array.strides = CompactStrides(array.shape);
    array.owner = range;
    array.device = range->arena->device;
  }
}

}  // namespace

uint64_t Offsets::Of(const View& array) {
  const uint64_t array_bytes = BytesInRange(array);
  if (array_bytes == 0) return 0;
  if (start_ != nullptr) return static_cast<uint64_t>(static_cast<const std::byte*>(array.data) - start_);
  return std::exchange(next_, next_ + array_bytes);
}

codec::PublishedArray SpecOf(const View& view, uint64_t offset) {
  std::string dtype = view.dtype.empty() ? NameOf(view.type) : view.dtype;
  return {.spec = {view.type, std::move(dtype), view.shape, {}, offset}, .size = view.nbytes()};
}

std::vector<codec::PublishedArray> SpecsOf(std::span<const View> views, Offsets offsets) {
  std::vector<codec::PublishedArray> arrays;
  arrays.reserve(views.size());
  for (const View& view : views) arrays.push_back(SpecOf(view, offsets.Of(view)));
  return arrays;
}

bool IsSpecOf(const codec::PublishedArray& array, const View& view, uint64_t offset) {
  const bool named = view.dtype.empty() ? IsNameOf(array.spec.dtype, view.type) : array.spec.dtype == view.dtype;
  return named && array.spec.type == view.type && array.spec.shape == view.shape && array.spec.offset == offset &&
         array.size == view.nbytes();
}

namespace {

// Fails unless the placement holds the only references to the bytes, which are about to be unmapped.
Status UnmapForSealing(const Placement& placement) {
  const auto& range = placement.range();
  if (!range->arena->own) return FailedPrecondition("only a placement with an arena of its own can be sealed");
  const auto own_claims = static_cast<long>(1 + placement.described().size());
  if (range.use_count() > own_claims) return FailedPrecondition("a view of the placement is still in use");
  range->releases->written().Unmap(*range->arena);
  return Ok();
}

// The streams whose work readers must wait for.
std::vector<uintptr_t> StreamsOf(const Placement& placement) {
  std::vector<uintptr_t> streams;
  const auto add = [&](uintptr_t stream) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  };
  for (const View& view : placement.described()) {
    if (view.device.type != kDeviceCpu && view.stream.has_value()) add(*view.stream);
  }
  for (const auto& queued : placement.range()->queued) add(queued.stream);
  return streams;
}

// Records the event that readers wait for. Returns null if the work is finished: events do not work or all are in use,
// and this thread has waited. `may_be_late`: false for a channel, which takes finished bytes only. The event is
// recorded before the share is visible, because an event that was never recorded counts as completed.
Result<std::unique_ptr<RecordedEvent>> FenceOf(const Session& session, const Placement& placement, bool may_be_late) {
  const std::vector<uintptr_t> streams = StreamsOf(placement);
  const Device& device = placement.range()->arena->device;
  if (streams.empty()) return std::unique_ptr<RecordedEvent>();
  if (may_be_late && session.server().events && session.opens_events()) {
    auto event = RecordAfter(device, streams);
    if (!event.ok() || *event) return event;
  }
  View on_stream;
  on_stream.device = device;
  for (const uintptr_t stream : streams) {
    on_stream.stream = stream;
    AB_RETURN_IF_ERROR(WaitForProducer(on_stream));
  }
  return std::unique_ptr<RecordedEvent>();
}

// An event whose handle the broker may have passed on. Unless the share is tracked by Fences, or the broker is known
// not to have passed it on, the event is never recorded again.
struct EmittedEvent {
  explicit EmittedEvent(std::unique_ptr<RecordedEvent> of) : event(std::move(of)) {}
  ~EmittedEvent() {
    if (event) event->Retire();
  }

  std::unique_ptr<RecordedEvent> event;
};

// The broker has the share. Fences tracks it until its bytes are written.
void LookAfter(Session& session, uint64_t share, Placement::Range& range, std::unique_ptr<RecordedEvent> event) {
  const auto queued = std::exchange(range.queued, {});
  if (!event) return;
  Fences::Sources sources;
  for (const auto& one : queued) sources.push_back(one.source);
  session.fences().Add(share, std::move(event), std::move(sources));
  session.reclaimer().Nudge();
}

}  // namespace

codec::Publish RequestFor(const Session& session, const Broker::PublishOptions& options, uint64_t arena,
                          uint64_t generation, const ByteRange& range, const IntoChannel& into) {
  return {.message = {.name = options.name,
                      .arena = arena,
                      .arena_generation = generation,
                      .offset = range.offset,
                      .size = range.size,
                      .replace = options.replace,
                      .sealed = options.sealed,
                      .structure = options.structure,
                      .metadata = options.metadata,
                      .channel = into.channel,
                      .timeout_ms = into.timeout_ms,
                      .lifetime_ms = static_cast<uint64_t>(std::max<int64_t>(options.lifetime.count(), 0)),
                      .note = session.NoteFor(options.note),
                      .seen_notice = into.seen_notice}};
}

bool IsForQueue(const Session& session, std::string_view ns, const Broker::PublishOptions& options) {
  return !options.wait && !options.replace && !options.sealed && !options.name.empty() && session.unwaited().in(ns);
}

Share ShareOf(const wire::PublishResponse& published, std::string_view ns, codec::Publish request, const Device& device,
              HandleKind kind, const Session& session) {
  Share share;
  share.id = published.share;
  if (share.id != 0) share.broker_id = session.server().info.broker_id;
  share.ns = ns;
  share.name = published.name;
  share.generation = published.generation;
  share.size = request.message.size;
  share.device = device;
  share.kind = kind;
  share.immutability = codec::ImmutabilityOf(published.immutability);
  share.structure = request.message.structure;
  share.metadata = request.message.metadata;
  share.unnamed = request.message.name.empty();
  share.arrays.reserve(request.arrays.size());
  for (auto& array : request.arrays) share.arrays.push_back(std::move(array.spec));
  return share;
}

void Expect(Session& session, const Status& why, std::string_view ns, codec::Publish request, const Device& device,
            HandleKind kind) {
  if (!Outcomes::Key::Of(why)) return;
  Share expected = ShareOf({}, ns, std::move(request), device, kind, session);
  expected.broker_id = session.server().info.broker_id;
  session.outcomes().Expect(why, std::move(expected));
}

namespace {

// The answer of a daemon that has taken over, about memory that ended with the one before it.
Status OfAnotherDaemon(const WrittenArena& arena, const Status& why) {
  if (arena.kind != HandleKind::kCudaIpc || why.reason() != "ARENA_NOT_FOUND") return why;
  return FailedPrecondition(
             "the memory of this array ended with the daemon that allocated it, as memory shared as cuda_ipc does: "
             "make the array again")
      .Because("MEMORY_LOST");
}

// Publishes through the queue, for host memory that the broker knows to be mapped.
bool SubmitUnwaited(Session& session, codec::Publish& request, const std::shared_ptr<Placement::Range>& range) {
  if (range->arena->device.type != kDeviceCpu) return false;
  session.lifeline().WantQueue();
  if (!range->arena->published_of.load(std::memory_order_relaxed)) return false;
  const std::string_view ns = std::exchange(request.message.namespace_, {});  // the queue has one of its own
  const bool submitted = session.unwaited().Submit(codec::Encode(request), request.message.name, range);
  request.message.namespace_ = ns;
  return submitted;
}

}  // namespace

Result<Placement> Allocate(Connection& connection, std::string_view ns, const Device& device, std::vector<View> arrays,
                           const ArenaWish& wish, const Broker::PublishOptions& options, PlaceDeadlines until) {
  if (wish.own && device.type != kDeviceCpu) {
    return Unimplemented("memory of a GPU cannot be sealed").Because("DEVICE_NOT_SEALED");
  }
  if (wish.pinned && (wish.own || device.type != kDeviceCpu)) {
    return InvalidArgument("pinned memory lies on the host, and is not an arena of its own").Because("NOT_PINNED");
  }
  AB_ASSIGN_OR_RETURN(const auto bytes, RangeBytesOf(arrays));
  for (bool again = true;; again = false) {
    auto session = connection.current();
    if (!session || session->lifeline().lost()) {
      AB_ASSIGN_OR_RETURN(session, connection.Connected(until.calls()));
    }
    AB_RETURN_IF_ERROR(CheckPublish(session->server().limits.share, ns, arrays, options));
    if (device.type != kDeviceCpu) session->ReportGpus();  // the device was found among the GPUs of this process
    auto carving = Carve(connection, *session, ns, device, bytes, wish, until);
    if (!carving.ok() && again && carving.status().reason() == Lifeline::kNotSent) continue;
    if (!carving.ok()) return carving.status();
    auto range = session->reclaimer().Adopt(
        std::make_unique<Placement::Range>(session->shared_releases(), carving->arena, carving->offset, bytes));
    if (!range.ok()) {
      session->written().ReleaseLocal(*carving->arena, carving->offset);
      return range.status();
    }
    session->written().Name(*carving, *range);
    LayOut(arrays, *range);
    return Placement(*std::move(range), std::move(arrays));
  }
}

Result<Share> PublishPlacement(Session& session, std::string_view ns, const Placement& placement,
                               const Broker::PublishOptions& options, Deadline deadline, const IntoChannel& into) {
  const std::shared_ptr<Placement::Range>& range = placement.range();
  const WrittenArena& arena = *range->arena;
  codec::Publish request = RequestFor(session, options, arena.id, arena.generation, {range->offset, range->size}, into);
  request.message.namespace_ = ns;
  request.arrays = SpecsOf(placement.described(), Offsets(range->data()));
  if (range->published.exchange(true)) {
    return FailedPrecondition("the placement is published already").Because("PLACEMENT_PUBLISHED");
  }
  if (into.channel == 0 && IsForQueue(session, ns, options) && SubmitUnwaited(session, request, range)) {
    return ShareOf({.name = options.name}, ns, std::move(request), arena.device, arena.kind, session);
  }
  auto event = FenceOf(session, placement, into.channel == 0);
  if (!event.ok()) return range->published.store(false), event.status();
  const auto emitted = std::make_shared<EmittedEvent>(*std::move(event));
  if (emitted->event) request.fence.event = emitted->event->handle();
  if (options.sealed) {
    if (Status unmapped = UnmapForSealing(placement); !unmapped.ok()) return range->published.store(false), unmapped;
  }
  // The broker holds the range until an answer says otherwise, even a late one.
  session.written().HoldForBroker(*range->arena, range->offset);
  if (range->kept) range->kept->Keep(range, placement.described());
  const auto refused = [](Placement::Range& of) {
    if (of.kept) of.kept->Forget(of);
    of.releases->written().ReleaseForBroker(of.arena->id, of.offset);
    of.published.store(false);
  };
  // The session owns the lifeline and therefore outlives its handlers.
  const auto heard = [&session, range, emitted, sealed = options.sealed](const wire::PublishResponse& published) {
    session.written().Return(published.returned);
    range->arena->published_of.store(true, std::memory_order_relaxed);
    LookAfter(session, published.share, *range, std::move(emitted->event));
    if (!sealed) return;
    // Nothing else can be published from it, so it goes with its share.
    session.written().Forget(*range->arena);
    session.releases().Post({{.arenas = {range->arena->id}}});
  };
  const auto handler = [heard, range, refused, emitted](const Result<Answer>& answer) {
    if (!answer.ok()) return emitted->event.reset(), refused(*range);
    // The share was published although the caller has given up. Only this process can report that its bytes are
    // written.
    if (const auto published = codec::Read<wire::PublishResponse>(answer->payload); published.ok()) heard(*published);
  };
  auto answer = session.Call(Verb::kPublish, codec::Encode(request), deadline, handler);
  if (!answer.ok()) {
    const Status& why = answer.status();
    if (why.reason() == Lifeline::kUnanswered) {
      Expect(session, why, ns, std::move(request), arena.device, arena.kind);
      return why;
    }
    // A broker that refused has passed the event to no client. If the broker is gone, that is unknown.
    if (!session.lifeline().lost() || why.reason() == Lifeline::kNotSent) emitted->event.reset();
    refused(*range);
    return arena.continued == session.lifeline().continued() ? why : OfAnotherDaemon(arena, why);
  }
  AB_ASSIGN_OR_RETURN(auto published, codec::Read<wire::PublishResponse>(answer->payload));
  heard(published);
  return ShareOf(published, ns, std::move(request), arena.device, arena.kind, session);
}

std::optional<Placement> FindPlacement(Session& session, std::span<const View> views, bool joins) {
  std::vector<std::shared_ptr<Placement::Range>> ranges;
  for (const View& view : views) {
    if (view.data == nullptr) continue;
    if (!view.compact() || std::bit_cast<uintptr_t>(view.data) % kArrayAlignment != 0) return std::nullopt;
    auto its = session.written().Find(view.device, view.data, view.nbytes());
    if (!its || its->published.load() || view.nbytes() < its->least) return std::nullopt;
    if (std::ranges::find(ranges, its) == ranges.end()) ranges.push_back(std::move(its));
  }
  auto range = joins || ranges.size() == 1 ? JointRangeOf(std::move(ranges), session.reclaimer()) : nullptr;
  if (!range) return std::nullopt;
  std::vector<View> found(views.begin(), views.end());
  for (View& view : found) {
    view.strides = CompactStrides(view.shape);
    if (!range->kept) view.owner = range;
    if (view.dtype.empty()) view.dtype = NameOf(view.type);
  }
  return Placement(std::move(range), std::move(found));
}

}  // namespace arraybridge

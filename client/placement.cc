#include "client/placement.h"

#include <bit>
#include <limits>

#include <arraybridge/device.h>

#include "client/arena.h"
#include "client/purpose.h"

namespace arraybridge {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Placement::Placement(std::shared_ptr<Range> range, std::vector<View> views)
    : range_(std::move(range)), views_(std::move(views)) {}

namespace {

// Times that the broker may answer "ranges came back" and they do not fit, before we say so.
constexpr int kCarvesMax = 8;

// Bytes that the array takes in its range: whole granules, none if it is empty. 0 too if that overflows.
uint64_t Room(const View& array) {
  const uint64_t bytes = array.nbytes();
  return bytes == 0 ? 0 : Carver::Granules(bytes);
}

Result<uint64_t> RoomOfAll(std::span<const View> arrays) {
  if (arrays.empty()) return InvalidArgument("a share has at least one array");
  uint64_t bytes = 0;
  for (const View& array : arrays) {
    const uint64_t room = Room(array);
    if ((room == 0 && array.nbytes() > 0) || room > std::numeric_limits<uint64_t>::max() - bytes) {
      return InvalidArgument("the arrays have more than 2^64 bytes");
    }
    bytes += room;
  }
  return Carver::Granules(bytes);
}

uint64_t MillisecondsLeft(Deadline deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()).count();
  return left > 0 ? static_cast<uint64_t>(left) : 0;
}

// One Allocate. Nothing, if ranges came back instead.
Result<std::optional<Handle>> Ask(Session& session, std::string_view ns, const Device& device, uint64_t size,
                                  uint64_t timeout_ms, Deadline deadline) {
  const codec::Allocate request{.ns = ns, .device = device, .size = size, .timeout_ms = timeout_ms};
  const auto late = [weak = session.weak_from_this()](Result<Answer> answer) {
    const auto self = weak.lock();
    if (!self || !answer.ok()) return;
    auto allocated = codec::DecodeAllocated(answer->payload);
    if (!allocated.ok()) return;
    self->written().Return(allocated->returned);
    if (allocated->has_handle) self->Post({.leases = {}, .arenas = {allocated->handle.arena}, .unmapped = {}});
  };
  auto answer = session.Call(Verb::kAllocate, codec::Encode(request), deadline, late);
  if (!answer.ok()) return answer.status();
  auto allocated = codec::DecodeAllocated(answer->payload);
  if (!allocated.ok()) return allocated.status();
  session.written().Return(allocated->returned);
  if (!allocated->has_handle) return std::optional<Handle>();
  allocated->handle.descriptor = std::move(answer->descriptor);
  return std::optional<Handle>(std::move(allocated->handle));
}

Result<WrittenArenas::Carving> MapAndCarve(Session& session, Handle handle, const Device& device, uint64_t bytes,
                                           bool own) {
  const auto give_back = [&] { session.Post({.leases = {}, .arenas = {handle.arena}, .unmapped = {}}); };
  if (handle.arena_size < bytes) {
    give_back();
    return Internal("the broker gave ", handle.arena_size, " bytes where ", bytes, " were asked for");
  }
  if (handle.device.type != device.type || handle.device.uuid != device.uuid) {
    give_back();
    return Internal("the broker gave memory of another device than was asked for");
  }
  handle.device = device;
  const auto mapper = session.mappers().Of(handle.kind);
  auto mapping = mapper.ok() ? (*mapper)->Map(handle, device, Access::kWrite) : mapper.status();
  if (!mapping.ok()) {
    handle.descriptor.reset();
    give_back();
    return mapping.status();
  }
  // Only a mapping may be left when the broker seals.
  handle.descriptor.reset();
  auto arena = std::make_shared<WrittenArena>(handle, *std::move(mapping), own);
  // Not waited for: the next Publish comes behind it on the same socket, and says what went wrong.
  AB_RETURN_IF_ERROR(session.lifeline().Post(Verb::kMapped, codec::EncodeMapped(handle.arena)));
  return session.written().Add(std::move(arena), bytes);
}

// The ladder: what is there; a new arena; local reclaim and a new arena; waiting for one.
Result<WrittenArenas::Carving> Carve(Connection& connection, Session& session, std::string_view ns,
                                     const Device& device, uint64_t bytes, bool own, Deadline deadline) {
  bool reclaimed = false;
  for (int turn = 0; turn < kCarvesMax; ++turn) {
    session.reaper().CollectReady();
    if (!own) {
      if (auto carving = session.written().Carve(device, bytes)) return *std::move(carving);
    }
    const uint64_t size = session.written().NextSize(device, bytes, own);
    const uint64_t wait = reclaimed ? MillisecondsLeft(deadline) : 0;
    // The broker decides when time is up; this side only watches that it answers.
    auto handle = Ask(session, ns, device, size, wait, deadline + milliseconds(reclaimed ? 1000 : 0));
    if (handle.ok() && handle->has_value()) return MapAndCarve(session, std::move(**handle), device, bytes, own);
    if (handle.ok()) continue;
    if (handle.status().code() != Code::kResourceExhausted || reclaimed) return handle.status();
    reclaimed = true;
    AB_RETURN_IF_ERROR(connection.Flush(deadline));
  }
  return ResourceExhausted("no contiguous room for ", bytes, " bytes in the arenas of this session");
}

void LayOut(std::vector<View>& arrays, const std::shared_ptr<Placement::Range>& range) {
  std::byte* next = range->data();
  for (View& array : arrays) {
    const uint64_t room = Room(array);
    array.data = room == 0 ? nullptr : next;
    next += room;
    if (array.dtype.empty()) array.dtype = NameOf(array.type);
    array.strides = CompactStrides(array.shape);
    array.owner = range;
    array.device = range->arena->device;
  }
}

codec::PublishedArray SpecOf(const View& view, const std::byte* start) {
  codec::PublishedArray array;
  array.spec.type = view.type;
  array.spec.dtype = view.dtype;
  array.spec.shape = view.shape;
  array.size = view.nbytes();
  if (view.data != nullptr) array.spec.offset = static_cast<uint64_t>(static_cast<const std::byte*>(view.data) - start);
  return array;
}

// Nobody but the placement itself may still look at bytes that are about to be unmapped.
Status UnmapForSealing(const Placement& placement) {
  const auto& range = placement.range();
  if (!range->arena->own) return FailedPrecondition("only a placement with an arena of its own can be sealed");
  const auto own_claims = static_cast<long>(1 + placement.views().size());
  if (range.use_count() > own_claims) return FailedPrecondition("a view of the placement is still in use");
  range->arena->Unmap();
  return Ok();
}

// The fence is "done": what readers are told to read is there.
Status WaitForProducers(const Placement& placement) {
  for (const View& view : placement.views()) AB_RETURN_IF_ERROR(WaitForProducer(view));
  return Ok();
}

Share ShareOf(codec::Published published, codec::Publish request, const WrittenArena& arena, const Session& session) {
  Share share;
  share.id = published.share;
  share.broker_id = session.server().info.broker_id;
  share.ns = request.ns;
  share.name = std::move(published.name);
  share.generation = published.generation;
  share.size = request.size;
  share.device = arena.device;
  share.kind = arena.kind;
  share.immutability = published.immutability;
  share.structure = request.structure;
  share.metadata = request.metadata;
  share.unnamed = request.name.empty();
  share.arrays.reserve(request.arrays.size());
  for (auto& array : request.arrays) share.arrays.push_back(std::move(array.spec));
  return share;
}

}  // namespace

Result<Placement> MakeRoom(Connection& connection, std::string_view ns, const Device& device, std::vector<View> arrays,
                           bool own, const Broker::PublishOptions& purpose, Deadline deadline) {
  if (own && device.type != kDeviceCpu) {
    return Unimplemented("memory of a GPU cannot be sealed").Because("DEVICE_NOT_SEALED");
  }
  const auto bytes = RoomOfAll(arrays);
  if (!bytes.ok()) return bytes.status();
  for (bool again = true;; again = false) {
    auto session = connection.Connected(deadline);
    if (!session.ok()) return session.status();
    AB_RETURN_IF_ERROR(CheckPurpose((*session)->server().limits.share, ns, arrays, purpose));
    auto carving = Carve(connection, **session, ns, device, *bytes, own, deadline);
    if (!carving.ok() && again && carving.status().reason() == Lifeline::kNotSent) continue;
    if (!carving.ok()) return carving.status();
    auto range = (*session)->reaper().Adopt(
        std::make_unique<Placement::Range>(*session, carving->arena, carving->offset, *bytes));
    if (!range.ok()) {
      (*session)->written().DropLocal(*carving->arena, carving->offset);
      return range.status();
    }
    (*session)->written().Name(*range);
    LayOut(arrays, *range);
    return Placement(*std::move(range), std::move(arrays));
  }
}

Result<Share> PublishPlacement(Session& session, std::string_view ns, const Placement& placement,
                               const Broker::PublishOptions& options, Deadline deadline) {
  const std::shared_ptr<Placement::Range>& range = placement.range();
  codec::Publish request;
  request.ns = ns;
  request.name = options.name;
  request.arena = range->arena->id;
  request.arena_generation = range->arena->generation;
  request.offset = range->offset;
  request.size = range->size;
  request.replace = options.replace;
  request.sealed = options.sealed;
  request.structure = options.structure;
  request.metadata = options.metadata;
  request.arrays.reserve(placement.views().size());
  for (const View& view : placement.views()) request.arrays.push_back(SpecOf(view, range->data()));
  AB_RETURN_IF_ERROR(WaitForProducers(placement));
  if (range->published.exchange(true)) {
    return FailedPrecondition("the placement is published already").Because("PLACEMENT_PUBLISHED");
  }
  if (options.sealed) {
    if (Status unmapped = UnmapForSealing(placement); !unmapped.ok()) return range->published.store(false), unmapped;
  }
  // The range stays with the broker until the answer says otherwise, even if that comes too late.
  session.written().HoldForBroker(*range->arena, range->offset);
  const auto refused = [](Placement::Range& of) {
    of.session->written().DropForBroker(*of.arena, of.offset);
    of.published.store(false);
  };
  const auto late = [range, refused](Result<Answer> answer) {
    if (!answer.ok()) refused(*range);
  };
  auto answer = session.Call(Verb::kPublish, codec::Encode(request), deadline, late);
  if (!answer.ok()) {
    if (answer.status().reason() != Lifeline::kUnanswered) refused(*range);
    return answer.status();
  }
  auto published = codec::DecodePublished(answer->payload);
  if (!published.ok()) return published.status();
  session.written().Return(published->returned);
  if (options.sealed) session.written().Forget(*range->arena);
  return ShareOf(*std::move(published), std::move(request), *range->arena, session);
}

Result<Placement> FindPlacement(Session& session, std::span<const View> views) {
  const auto none = [] { return NotFound("the arrays do not lie in one unpublished placement of this connection"); };
  std::shared_ptr<Placement::Range> range;
  std::vector<View> found(views.begin(), views.end());
  for (View& view : found) {
    view.owner = nullptr;
    if (view.data == nullptr) continue;
    if (!view.compact()) return none();
    if (std::bit_cast<uintptr_t>(view.data) % kArrayAlignment != 0) return none();
    auto its = session.written().Find(view.device, view.data, view.nbytes());
    if (!its || (range && its != range)) return none();
    range = std::move(its);
  }
  if (!range) return none();
  for (View& view : found) {
    view.strides = CompactStrides(view.shape);
    view.owner = range;
    if (view.dtype.empty()) view.dtype = NameOf(view.type);
  }
  return Placement(std::move(range), std::move(found));
}

}  // namespace arraybridge

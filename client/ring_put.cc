#include "client/ring_put.h"

#include <algorithm>
#include <utility>

#include "client/arena.h"
#include "client/carver.h"
#include "client/codec.h"
#include "client/placement.h"
#include "client/purpose.h"

namespace arraybridge {
namespace {

bool IsForRing(const Session& session, std::string_view ns, const Broker::PublishOptions& options) {
  return !options.wait && !options.replace && !options.sealed && !options.name.empty() && session.ring().in(ns);
}

// Where the next of them lies in a range, and how many bytes they take there.
codec::PublishedArray PlaceOf(const View& source, uint64_t bytes, uint64_t offset) {
  codec::PublishedArray array;
  array.spec.type = source.type;
  array.spec.dtype = source.dtype.empty() ? NameOf(source.type) : source.dtype;
  array.spec.shape = source.shape;
  array.size = bytes;
  if (bytes > 0) array.spec.offset = offset;
  return array;
}

}  // namespace

std::optional<Share> PutThroughRing(Session& session, std::string_view ns, std::span<const View> sources,
                                    const Broker::PublishOptions& options) {
  if (!IsForRing(session, ns, options)) return std::nullopt;
  session.ring().Foresee(session);
  const auto on_host = [](const View& source) { return source.device.type == kDeviceCpu; };
  const auto size = RoomOfAll(sources);
  if (!session.ring().ready() || !size.ok() || !std::ranges::all_of(sources, on_host)) return std::nullopt;
  if (!CheckPurpose(session.server().limits.share, ns, sources, options).ok()) return std::nullopt;
  auto carving = session.written().CarveForBroker(Device{}, *size);
  if (!carving) return std::nullopt;
  const auto not_this_way = [&] {
    session.written().DropForBroker(carving->arena->id, carving->offset);
    return std::nullopt;
  };
  // A ring is no way to say that an arena is mapped.
  if (!carving->arena->published_of.load(std::memory_order_relaxed)) return not_this_way();
  codec::Publish request;
  request.name = options.name;
  request.arena = carving->arena->id;
  request.arena_generation = carving->arena->generation;
  request.offset = carving->offset;
  request.size = *size;
  request.structure = options.structure;
  request.metadata = options.metadata;
  request.note = session.NoteFor(options.note);
  request.lifetime_ms = static_cast<uint64_t>(std::max<int64_t>(options.lifetime.count(), 0));
  request.arrays.reserve(sources.size());
  uint64_t next = 0;
  for (const View& source : sources) {
    const uint64_t bytes = source.nbytes();
    request.arrays.push_back(PlaceOf(source, bytes, next));
    if (bytes == 0) continue;
    CopyCompact(source, carving->arena->data() + carving->offset + next);
    next += Carver::Granules(bytes);
  }
  const bool entered =
      session.ring().Enter(session, codec::Encode(request), options.name, carving->arena->id, carving->offset);
  if (!entered) return not_this_way();
  return ShareOf({.name = options.name, .returned = {}}, ns, std::move(request), *carving->arena, session);
}

}  // namespace arraybridge

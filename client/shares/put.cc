#include "client/shares/put.h"

#include <algorithm>
#include <utility>

#include "client/arenas/carver.h"
#include "client/lifeline/lifeline.h"
#include "client/shares/placement.h"
#include "client/shares/publish_limits.h"
#include "client/wire/codec.h"

namespace arraybridge {
namespace {

// A range that the broker holds. The destructor frees it unless a publish request was sent.
class Unpublished {
 public:
  Unpublished(Session& session, const WrittenArenas::Carving& carving)
      : session_(session), arena_(carving.arena->id), offset_(carving.offset) {}
  ~Unpublished() {
    if (!kept_) session_.written().DropForBroker(arena_, offset_);
  }
  Unpublished(const Unpublished&) = delete;
  Unpublished& operator=(const Unpublished&) = delete;
  void Keep() { kept_ = true; }

 private:
  Session& session_;
  const uint64_t arena_;
  const uint64_t offset_;
  bool kept_ = false;
};

// The description of an array at this offset in a range.
codec::PublishedArray PlaceOf(const View& source, uint64_t bytes, uint64_t offset) {
  codec::PublishedArray array;
  array.spec.type = source.type;
  array.spec.dtype = source.dtype.empty() ? NameOf(source.type) : source.dtype;
  array.spec.shape = source.shape;
  array.size = bytes;
  if (bytes > 0) array.spec.offset = offset;
  return array;
}

void Fill(codec::Publish& request, std::span<const View> sources, std::byte* range) {
  request.arrays.reserve(sources.size());
  uint64_t next = 0;
  for (const View& source : sources) {
    const uint64_t bytes = source.nbytes();
    request.arrays.push_back(PlaceOf(source, bytes, next));
    if (bytes == 0) continue;
    CopyCompact(source, range + next);
    next += Carver::Granules(bytes);
  }
}

// Returns nothing if the request was not sent.
std::optional<Result<Share>> Call(Session& session, std::string_view ns, codec::Publish request,
                                  const std::shared_ptr<WrittenArena>& arena, Unpublished& range,
                                  std::chrono::milliseconds timeout) {
  // The session owns the lifeline and therefore outlives its handlers.
  const auto heard = [&session, arena](const codec::Published& published) {
    session.written().Return(published.returned);
    arena->published_of.store(true, std::memory_order_relaxed);
  };
  const Lifeline::CompletionHandler handler = [&session, heard, id = arena->id,
                                               offset = request.offset](const Result<Answer>& answer) {
    if (!answer.ok()) return session.written().DropForBroker(id, offset);
    if (const auto published = codec::DecodePublished(answer->payload); published.ok()) heard(*published);
  };
  request.ns = ns;
  const std::string message = codec::Encode(request);
  // The broker holds the range until an answer says otherwise, even a late one.
  range.Keep();
  auto answer = session.Call(Verb::kPublish, message, std::chrono::steady_clock::now() + timeout, handler);
  if (!answer.ok()) {
    Status why = answer.status();
    if (why.reason() != Lifeline::kUnanswered) session.written().DropForBroker(arena->id, request.offset);
    if (why.reason() == Lifeline::kNotSent) return std::nullopt;
    Expect(session, why, ns, std::move(request), arena->device, arena->kind);
    return why;
  }
  auto published = codec::DecodePublished(answer->payload);
  if (!published.ok()) return published.status();
  heard(*published);
  return ShareOf(*std::move(published), ns, std::move(request), arena->device, arena->kind, session);
}

}  // namespace

std::optional<Result<Share>> PutInOneStep(Session& session, std::string_view ns, std::span<const View> sources,
                                          const Broker::PublishOptions& options, std::chrono::milliseconds timeout) {
  if (options.sealed || (!options.wait && !IsForQueue(session, ns, options))) return std::nullopt;
  if (!options.wait) session.lifeline().WantQueue();
  if (!options.wait && !session.lifeline().has_queue()) return std::nullopt;
  const auto on_host = [](const View& source) { return source.device.type == kDeviceCpu; };
  const auto size = RoomOfAll(sources);
  if (!size.ok() || !std::ranges::all_of(sources, on_host)) return std::nullopt;
  if (!CheckPublish(session.server().limits.share, ns, sources, options).ok()) return std::nullopt;
  const auto carving = session.written().CarveForBroker(Device{}, *size);
  if (!carving) return std::nullopt;
  const std::shared_ptr<WrittenArena>& arena = carving->arena;
  Unpublished range(session, *carving);
  codec::Publish request = RequestFor(session, options, arena->id, arena->generation);
  request.offset = carving->offset;
  request.size = *size;
  Fill(request, sources, arena->data() + carving->offset);
  if (options.wait) return Call(session, ns, std::move(request), arena, range, timeout);
  // An unwaited request cannot report that an arena is mapped.
  if (!arena->published_of.load(std::memory_order_relaxed)) return std::nullopt;
  if (!session.unwaited().Submit(codec::Encode(request), options.name, arena->id, carving->offset)) {
    return std::nullopt;
  }
  range.Keep();
  return ShareOf({.name = options.name, .returned = {}}, ns, std::move(request), arena->device, arena->kind, session);
}

}  // namespace arraybridge

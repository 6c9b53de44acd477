// SPDX-License-Identifier: Apache-2.0
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

// Returns nothing if the request was not sent.
std::optional<Result<Share>> Call(Session& session, std::string_view ns, codec::Publish request,
                                  const std::shared_ptr<WrittenArena>& arena, Unpublished& range,
                                  std::chrono::milliseconds timeout) {
  // The session owns the lifeline and therefore outlives its handlers.
  const auto heard = [&session, arena](const wire::PublishResponse& published) {
    session.written().Return(published.returned);
    arena->published_of.store(true, std::memory_order_relaxed);
  };
  const Lifeline::CompletionHandler handler = [&session, heard, id = arena->id,
                                               offset = request.message.offset](const Result<Answer>& answer) {
    if (!answer.ok()) return session.written().ReleaseForBroker(id, offset);
    if (const auto published = codec::Read<wire::PublishResponse>(answer->payload); published.ok()) heard(*published);
  };
  request.message.namespace_ = ns;
  const std::string message = codec::Encode(request);
  // The broker holds the range until an answer says otherwise, even a late one.
  range.Keep();
  auto answer = session.Call(Verb::kPublish, message, std::chrono::steady_clock::now() + timeout, handler);
  if (!answer.ok()) {
    Status why = answer.status();
    if (why.reason() != Lifeline::kUnanswered) session.written().ReleaseForBroker(arena->id, request.message.offset);
    if (why.reason() == Lifeline::kNotSent) return std::nullopt;
    Expect(session, why, ns, std::move(request), arena->device, arena->kind);
    return why;
  }
  AB_ASSIGN_OR_RETURN(auto published, codec::Read<wire::PublishResponse>(answer->payload));
  heard(published);
  return ShareOf(published, ns, std::move(request), arena->device, arena->kind, session);
}

}  // namespace

void CopyAll(std::span<const View> sources, std::byte* range) {
  Offsets offsets(nullptr);
  for (const View& source : sources) {
    const uint64_t offset = offsets.Of(source);
    if (source.nbytes() > 0) CopyCompact(source, range + offset);
  }
}

bool AllOnHost(std::span<const View> views) {
  return std::ranges::all_of(views, [](const View& view) { return view.device.type == kDeviceCpu; });
}

std::optional<Result<Share>> PutInOneStep(Session& session, std::string_view ns, std::span<const View> sources,
                                          const Broker::PublishOptions& options, std::chrono::milliseconds timeout) {
  if (options.sealed || (!options.wait && !IsForQueue(session, ns, options))) return std::nullopt;
  if (!options.wait) session.lifeline().WantQueue();
  if (!options.wait && !session.lifeline().has_queue()) return std::nullopt;
  const auto size = RangeBytesOf(sources);
  if (!size.ok() || !AllOnHost(sources)) return std::nullopt;
  if (!CheckPublish(session.server().limits.share, ns, sources, options).ok()) return std::nullopt;
  const auto carving = session.written().CarveForBroker(Device{}, *size);
  if (!carving) return std::nullopt;
  const std::shared_ptr<WrittenArena>& arena = carving->arena;
  Unpublished range(session, *carving);
  codec::Publish request = RequestFor(session, options, arena->id, arena->generation, {carving->offset, *size});
  request.arrays = SpecsOf(sources, Offsets(nullptr));
  CopyAll(sources, arena->data() + carving->offset);
  if (options.wait) return Call(session, ns, std::move(request), arena, range, timeout);
  // An unwaited request cannot report that an arena is mapped.
  if (!arena->published_of.load(std::memory_order_relaxed)) return std::nullopt;
  if (!session.unwaited().Submit(codec::Encode(request), options.name, arena->id, carving->offset)) {
    return std::nullopt;
  }
  range.Keep();
  return ShareOf({.name = options.name}, ns, std::move(request), arena->device, arena->kind, session);
}

}  // namespace arraybridge

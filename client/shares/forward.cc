// SPDX-License-Identifier: Apache-2.0
#include "client/shares/forward.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "client/arenas/carver.h"
#include "client/memory/host/pagemap.h"
#include "client/process/fork_guard.h"

namespace arraybridge {
namespace {

// A right of this session to bytes of a share, and the range of the share.
struct Holding {
  wire::Source source;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::shared_ptr<void> entry = nullptr;  // as in Forward
};

// A lease, a hazard slot or a return bit keeps these bytes, because arrays in them are in use. The broker knows which
// bytes belong to a lease or a slot; a sender alone says it of a return bit, which is asked for last.
std::optional<Holding> HoldingOf(Session& session, const ReadArena& arena, uint64_t offset, uint64_t bytes) {
  if (const auto leased = arena.leases.Find(offset, bytes)) {
    return Holding{{.lease = leased->lease}, leased->offset, leased->size};
  }
  const uint64_t id = arena.handle.arena;
  const catalogue::Facts facts = session.hazards().FindHeld(id, offset, bytes);
  if (facts.share != 0) return Holding{{.share = facts.share}, facts.offset, facts.size};
  if (auto sent = session.direct_consumers().FindAndHold(id, offset, bytes)) {
    const wire::Source source{.direct_channel_number = sent->consumer->number(), .direct_channel_bit = sent->entry.bit};
    // A forked child has no pages.
    const auto leave = [consumer = sent->consumer, bit = sent->entry.bit, forks = ForkGeneration()](void*) {
      if (forks == ForkGeneration()) consumer->ReleaseForward(bit);
    };
    return Holding{source, sent->entry.offset, sent->entry.size, std::shared_ptr<void>(nullptr, leave)};
  }
  return std::nullopt;
}

// Nothing, for this reason.
std::nullopt_t None(std::string_view reason, std::string_view* why) {
  if (why != nullptr) *why = reason;
  return std::nullopt;
}

// The place of an array that can be a part of a forward. No reason: it lies elsewhere.
std::optional<ArenaCache::Place> PlaceOf(Session& session, const View& view, std::string_view* why) {
  if (view.device.type != kDeviceCpu) return std::nullopt;
  const bool compact = view.compact();
  const uint64_t bytes = compact ? view.nbytes() : 1;
  auto place = session.read().FindAt(view.data, bytes);
  if (!place) return std::nullopt;
  if (!compact || place->offset % kArrayAlignment != 0) return None("LAYOUT", why);
  if (place->own && !NeverWritten(static_cast<const std::byte*>(view.data), bytes)) return None("WRITTEN", why);
  return place;
}

bool Equal(const wire::Source& one, const wire::Source& other) {
  return one.lease == other.lease && one.share == other.share &&
         one.direct_channel_number == other.direct_channel_number && one.direct_channel_bit == other.direct_channel_bit;
}

Status Refused(std::string_view why) {
  return FailedPrecondition("the arrays cannot be published once more, because ", why, ": publish a copy of them")
      .Because("NOT_FORWARDED");
}

// The bytes may lie in several shares that this process holds. If the one that was found was given back since, the
// request names another one.
Result<Answer> CallPublish(Session& session, const Placement::Forward& forward, codec::Publish& request,
                           Deadline deadline, const Lifeline::CompletionHandler& handler) {
  std::shared_ptr<void> entry;  // until its answer is here
  for (;;) {
    auto answer = session.Call(Verb::kPublish, codec::Encode(request), deadline, handler);
    if (answer.ok() || !IsNotForwarded(answer.status())) return answer;
    auto holding = HoldingOf(session, *forward.arena, forward.offset, forward.size);
    if (!holding) return answer;
    entry = std::move(holding->entry);
    if (Equal(holding->source, *request.message.source)) return answer;
    request.message.source = holding->source;
  }
}

}  // namespace

Placement::Placement(std::shared_ptr<const Forward> forward, std::vector<View> views)
    : forward_(std::move(forward)), views_(std::move(views)) {}

std::optional<Placement> FindForward(Session& session, std::span<const View> views, std::string_view* why) {
  std::shared_ptr<ReadArena> arena;
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  std::vector<uint64_t> offsets;  // nothing is allocated for arrays that lie elsewhere, which are most
  for (const View& view : views) {
    if (view.data == nullptr) {
      offsets.push_back(0);
      continue;
    }
    std::string_view reason;
    auto place = PlaceOf(session, view, &reason);
    if (!place) return None(arena && reason.empty() ? "APART" : reason, why);
    if (arena && arena != place->arena) return None("APART", why);
    arena = std::move(place->arena);
    first = std::min(first, place->offset);
    last = std::max(last, place->offset + view.nbytes());
    offsets.push_back(place->offset);
  }
  if (!arena) return std::nullopt;
  auto holding = HoldingOf(session, *arena, first, last - first);
  if (!holding) return None("APART", why);
  const uint64_t size = std::min(Carver::Granules(last - first), holding->offset + holding->size - first);
  std::vector<View> parts(views.begin(), views.end());
  for (size_t i = 0; i < parts.size(); ++i) {
    View& view = parts[i];
    if (view.dtype.empty()) view.dtype = NameOf(view.type);
    if (view.data == nullptr) continue;
    view.data = arena->shared->data() + offsets[i];
    view.strides = CompactStrides(view.shape);
    view.read_only = true;
  }
  auto forward = std::make_shared<const Placement::Forward>(Placement::Forward{
      session.shared_releases(), std::move(arena), first, size, holding->source, std::move(holding->entry)});
  return Placement(std::move(forward), std::move(parts));
}

Result<Share> PublishForward(Session& session, std::string_view ns, const Placement& placement,
                             const Broker::PublishOptions& options, Deadline deadline, const IntoChannel& into) {
  const Placement::Forward& forward = *placement.forward();
  if (forward.releases.get() != &session.releases()) {
    return Refused("their share went with an earlier connection");
  }
  const Handle& arena = forward.arena->handle;
  codec::Publish request =
      RequestFor(session, options, arena.arena, arena.generation, {forward.offset, forward.size}, into);
  request.message.namespace_ = ns;
  request.message.source = forward.source;
  request.arrays = SpecsOf(placement.described(), Offsets(forward.arena->shared->data() + forward.offset));
  // The session owns the lifeline and therefore outlives its handlers.
  const auto heard = [&session](const Result<Answer>& answer) {
    auto published = answer.ok() ? codec::Read<wire::PublishResponse>(answer->payload) : answer.status();
    if (published.ok()) session.written().Return(published->returned);
    return published;
  };
  const auto answer = CallPublish(session, forward, request, deadline, heard);
  const auto published = heard(answer);
  if (published.ok()) return ShareOf(*published, ns, std::move(request), arena.device, arena.kind, session);
  Expect(session, published.status(), ns, std::move(request), arena.device, arena.kind);
  // A broker of an earlier version looks for an arena that this session writes.
  const bool is_earlier = published.status().reason() == "ARENA_NOT_FOUND";
  return is_earlier ? Refused("the broker is of an earlier version") : published.status();
}

}  // namespace arraybridge

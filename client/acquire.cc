#include "client/acquire.h"

#include "client/arena.h"

namespace arraybridge {
namespace {

constexpr size_t kRankMax = 64;

struct Granted {
  codec::LeasedShare facts;
  std::shared_ptr<Lease> lease;
};

// An answer that nobody waits for any more has granted all the same.
void GiveBackLate(Session& session, const Result<Answer>& answer) {
  if (!answer.ok()) return;
  const auto acquired = codec::DecodeAcquired(answer->payload);
  if (!acquired.ok()) return session.lifeline().Break(acquired.status());
  codec::Release release;
  for (const auto& share : acquired->shares) release.leases.push_back(share.lease);
  if (acquired->descriptor_arena != 0) release.unmapped.push_back(acquired->descriptor_arena);
  session.Post(std::move(release));
}

Result<std::vector<Granted>> Own(Session& session, codec::AcquiredShares acquired) {
  std::vector<Granted> granted;
  codec::Release unowned;
  Status failed;
  for (auto& facts : acquired.shares) {
    auto lease = session.reaper().Adopt(std::make_unique<Lease>(session.shared_from_this(), facts.lease));
    if (lease.ok()) {
      granted.push_back({std::move(facts), *std::move(lease)});
      continue;
    }
    unowned.leases.push_back(facts.lease);
    failed = lease.status();
  }
  if (failed.ok()) return granted;
  session.Post(std::move(unowned));
  return failed;
}

Status CheckShare(const codec::LeasedShare& facts) {
  const Share& share = facts.share;
  if (!facts.fence_done) return Unimplemented("share '", share.name, "' waits for a device event");
  if (facts.handle.kind != HandleKind::kMemfd) return Unimplemented("share '", share.name, "' is not in host memory");
  if (facts.handle.offset % kArrayAlignment != 0) return InvalidArgument("share '", share.name, "' is not aligned");
  for (const ArraySpec& spec : share.arrays) {
    if (spec.shape.size() > kRankMax) {
      return InvalidArgument("share '", share.name, "' has an array of ", spec.shape.size(), " dimensions");
    }
    const Status inside = spec.CheckInside(share.size);
    if (!inside.ok()) return InvalidArgument("share '", share.name, "': ", inside.message());
  }
  return Ok();
}

Result<std::shared_ptr<ReadArena>> MapArena(Session& session, const Handle& of, UniqueFd descriptor) {
  auto arena = std::make_shared<ReadArena>();
  arena->handle.kind = of.kind;
  arena->handle.descriptor = std::move(descriptor);
  arena->handle.arena = of.arena;
  arena->handle.generation = of.generation;
  arena->handle.size = arena->handle.arena_size = of.arena_size;
  arena->handle.device = of.device;
  auto mapping = session.mapper().Map(arena->handle, of.device, Access::kRead);
  if (!mapping.ok()) {
    // The broker thinks that this client has it.
    session.Post({.leases = {}, .arenas = {}, .unmapped = {of.arena}});
    return mapping.status();
  }
  arena->shared = *std::move(mapping);
  return session.read().Add(std::move(arena));
}

// The arena came in an earlier answer, with this one, or must be asked for.
Result<std::shared_ptr<ReadArena>> ArenaOf(Session& session, const Handle& of, UniqueFd& arrived,
                                           uint64_t arrived_arena, Deadline deadline) {
  if (auto known = session.read().Find(of.arena, of.generation)) return known;
  if (arrived.valid() && arrived_arena == of.arena) return MapArena(session, of, std::move(arrived));
  const auto late = [weak = session.weak_from_this(), arena = of.arena](const Result<Answer>& answer) {
    const auto self = weak.lock();
    if (self && answer.ok()) self->Post({.leases = {}, .arenas = {}, .unmapped = {arena}});
  };
  auto answer = session.Call(Verb::kExport, codec::EncodeExport(of.arena, of.generation), deadline, late);
  if (!answer.ok()) return answer.status();
  const auto exported = codec::DecodeExported(answer->payload);
  if (!exported.ok()) return exported.status();
  if (exported->arena != of.arena || exported->generation != of.generation) {
    return Internal("the broker exported another arena than was asked for");
  }
  return MapArena(session, *exported, std::move(answer->descriptor));
}

// REQUIRES: the lease's arena is mapped.
Result<std::vector<View>> ViewsOf(Session& session, const Granted& granted, MapMode mode) {
  const Handle& handle = granted.facts.handle;
  const ReadArena& arena = *granted.lease->arena;
  if (handle.arena_size != arena.handle.arena_size) return Internal("the broker changed the size of an arena");
  std::byte* base = arena.shared->data() + handle.offset;
  if (mode == MapMode::kPrivate) {
    auto mapping = session.mapper().MapPrivate(arena.handle, handle.offset, handle.size);
    if (!mapping.ok()) return mapping.status();
    granted.lease->private_mapping = *std::move(mapping);
    base = granted.lease->private_mapping->data();
  }
  std::vector<View> views;
  for (const ArraySpec& spec : granted.facts.share.arrays) {
    auto view = Describe(base + spec.offset, spec.type, spec.shape, spec.strides, granted.facts.share.device,
                         mode == MapMode::kShared, granted.lease);
    if (!view.ok()) return view.status();
    view->dtype = spec.dtype;
    views.push_back(*std::move(view));
  }
  return views;
}

}  // namespace

Result<std::vector<Acquired>> AcquireShares(Session& session, std::string_view ns, std::span<const ShareRef> refs,
                                            MapMode mode, uint64_t timeout_ms, Deadline deadline) {
  const auto late = [weak = session.weak_from_this()](const Result<Answer>& answer) {
    if (const auto self = weak.lock()) GiveBackLate(*self, answer);
  };
  auto answer = session.Call(Verb::kAcquire, codec::EncodeAcquire(ns, refs, timeout_ms), deadline, late);
  if (!answer.ok()) return answer.status();
  auto decoded = codec::DecodeAcquired(answer->payload);
  if (!decoded.ok() || decoded->shares.size() != refs.size()) {
    // Leases that cannot be named cannot be given back one by one.
    session.lifeline().Break(Unavailable("the broker answered nonsense to an Acquire"));
    return Internal("the broker answered nonsense to an Acquire");
  }
  const uint64_t arrived_arena = decoded->descriptor_arena;
  auto granted = Own(session, *std::move(decoded));
  if (!granted.ok()) return granted.status();
  std::vector<Acquired> acquired;
  for (Granted& one : *granted) {
    AB_RETURN_IF_ERROR(CheckShare(one.facts));
    auto arena = ArenaOf(session, one.facts.handle, answer->descriptor, arrived_arena, deadline);
    if (!arena.ok()) return arena.status();
    one.lease->arena = *std::move(arena);
    auto views = ViewsOf(session, one, mode);
    if (!views.ok()) return views.status();
    one.facts.share.broker_id = session.server().info.broker_id;
    acquired.push_back({std::move(one.facts.share), *std::move(views)});
  }
  return acquired;
}

}  // namespace arraybridge

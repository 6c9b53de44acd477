#include "client/acquire.h"

#include "client/arena.h"
#include "client/layout.h"

namespace arraybridge {
namespace {

// An answer that nobody waits for any more has granted all the same.
void GiveBackLate(Session& session, const Result<Answer>& answer) {
  if (!answer.ok()) return;
  const auto grants = codec::DecodeGrants(answer->payload);
  if (!grants.ok()) return session.lifeline().Break(grants.status());
  codec::Release release;
  for (const auto& grant : grants->shares) release.leases.push_back(grant.lease);
  if (grants->descriptor_arena != 0) release.unmapped.push_back(grants->descriptor_arena);
  session.Post(std::move(release));
}

Result<std::vector<std::shared_ptr<Lease>>> Own(Session& session, const codec::Grants& grants) {
  std::vector<std::shared_ptr<Lease>> leases;
  leases.reserve(grants.shares.size());
  codec::Release unowned;
  Status failed;
  for (const codec::Grant& grant : grants.shares) {
    auto lease = session.reaper().Adopt(std::make_unique<Lease>(session.shared_from_this(), grant.lease));
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
      continue;
    }
    unowned.leases.push_back(grant.lease);
    failed = lease.status();
  }
  if (failed.ok()) return leases;
  session.Post(std::move(unowned));
  return failed;
}

Status CheckShare(const codec::DescribedShare& described) {
  const Share& share = described.share;
  const Handle& handle = described.handle;
  if (!described.fence_done) return Unimplemented("share '", share.name, "' waits for a device event");
  if (handle.offset % kArrayAlignment != 0) return InvalidArgument("share '", share.name, "' is not aligned");
  for (const ArraySpec& spec : share.arrays) {
    if (spec.shape.size() > layout::kRankMax) {
      return InvalidArgument("share '", share.name, "' has an array of ", spec.shape.size(), " dimensions");
    }
    const Status inside = spec.CheckInside(share.size);
    if (!inside.ok()) return InvalidArgument("share '", share.name, "': ", inside.message());
  }
  return Ok();
}

Result<KnownArray> Know(const ArraySpec& spec, const Device& device) {
  std::byte anywhere{};  // the address differs from lease to lease
  auto view = Describe(&anywhere, spec.type, spec.shape, spec.strides, device, true, nullptr);
  if (!view.ok()) return view.status();
  view->dtype = spec.dtype;
  const bool empty = view->data == nullptr;
  view->data = nullptr;
  return KnownArray{*std::move(view), spec.offset, empty};
}

Result<std::shared_ptr<const KnownShare>> Know(Session& session, std::string_view description) {
  if (auto known = session.known().Find(description)) return known;
  auto described = codec::DecodeShare(description);
  if (!described.ok()) {
    // A broker that speaks nonsense is not to be believed in anything else.
    session.lifeline().Break(Unavailable("the broker answered nonsense to an Acquire"));
    return Internal("the broker answered nonsense to an Acquire");
  }
  AB_RETURN_IF_ERROR(CheckShare(*described));
  auto mapper = session.mappers().Of(described->handle.kind);
  if (!mapper.ok()) return mapper.status();
  auto device = (*mapper)->Local(described->handle.device);
  if (!device.ok()) return device.status();
  described->handle.device = described->share.device = *std::move(device);
  auto fresh = std::make_shared<KnownShare>();
  fresh->description = description;
  fresh->share = std::move(described->share);
  fresh->share.broker_id = session.server().info.broker_id;
  fresh->handle = std::move(described->handle);
  for (const ArraySpec& spec : fresh->share.arrays) {
    auto array = Know(spec, fresh->share.device);
    if (!array.ok()) return array.status();
    fresh->arrays.push_back(*std::move(array));
  }
  session.known().Add(fresh);
  return std::shared_ptr<const KnownShare>(std::move(fresh));
}

Result<std::shared_ptr<ReadArena>> MapArena(Session& session, const Handle& of, UniqueFd descriptor) {
  auto arena = std::make_shared<ReadArena>();
  arena->handle.kind = of.kind;
  arena->handle.descriptor = std::move(descriptor);
  arena->handle.arena = of.arena;
  arena->handle.generation = of.generation;
  arena->handle.size = arena->handle.arena_size = of.arena_size;
  arena->handle.device = of.device;
  arena->handle.opaque = of.opaque;
  const auto mapper = session.mappers().Of(of.kind);
  auto mapping = mapper.ok() ? (*mapper)->Map(arena->handle, of.device, Access::kRead) : mapper.status();
  if (!mapping.ok()) return mapping.status();
  arena->shared = *std::move(mapping);
  // Only private mappings of host memory need it again.
  if (of.kind != HandleKind::kMemfd) arena->handle.descriptor.reset();
  return session.read().Add(arena);
}

// The arena came in an earlier answer, with this one, or must be asked for.
Result<std::shared_ptr<ReadArena>> ArenaOf(Session& session, const Handle& of, UniqueFd& arrived,
                                           uint64_t arrived_arena, Deadline deadline) {
  if (auto known = session.read().Find(of.arena, of.generation)) return known;
  const bool here = of.kind == HandleKind::kCudaIpc || (arrived.valid() && arrived_arena == of.arena);
  if (here) return MapArena(session, of, std::move(arrived));
  const auto late = [weak = session.weak_from_this(), arena = of.arena](const Result<Answer>& answer) {
    const auto self = weak.lock();
    if (self && answer.ok()) self->Post({.leases = {}, .arenas = {}, .unmapped = {arena}});
  };
  auto answer = session.Call(Verb::kExport, codec::EncodeExport(of.arena, of.generation), deadline, late);
  if (!answer.ok()) return answer.status();
  auto exported = codec::DecodeExported(answer->payload);
  if (!exported.ok()) return exported.status();
  if (exported->arena != of.arena || exported->generation != of.generation) {
    return Internal("the broker exported another arena than was asked for");
  }
  exported->device = of.device;
  return MapArena(session, *exported, std::move(answer->descriptor));
}

// REQUIRES: the lease's arena is mapped.
Result<std::vector<View>> ViewsOf(Session& session, const KnownShare& known, const std::shared_ptr<Lease>& lease,
                                  MapMode mode) {
  const Handle& handle = known.handle;
  const ReadArena& arena = *lease->arena;
  if (handle.arena_size != arena.handle.arena_size) return Internal("the broker changed the size of an arena");
  std::byte* base = arena.shared->data() + handle.offset;
  // A GPU has no copy-on-write: there everybody reads the arena itself.
  const bool own = mode == MapMode::kPrivate && handle.device.type == kDeviceCpu;
  if (own) {
    const auto mapper = session.mappers().Of(handle.kind);
    if (!mapper.ok()) return mapper.status();
    auto mapping = (*mapper)->MapPrivate(arena.handle, handle.offset, handle.size);
    if (!mapping.ok()) return mapping.status();
    lease->private_mapping = *std::move(mapping);
    base = lease->private_mapping->data();
  }
  std::vector<View> views;
  views.reserve(known.arrays.size());
  for (const KnownArray& array : known.arrays) {
    View& view = views.emplace_back(array.view);
    if (!array.empty) view.data = base + array.offset;
    view.read_only = !own;
    view.owner = lease;
  }
  return views;
}

}  // namespace

Result<std::vector<Acquired>> AcquireShares(Session& session, std::string_view ns, std::span<const ShareRef> refs,
                                            MapMode mode, uint64_t timeout_ms, Deadline deadline) {
  // The lifeline, and what waits in it, dies with the session.
  const auto late = [&session](const Result<Answer>& answer) { GiveBackLate(session, answer); };
  auto answer = session.Call(Verb::kAcquire, codec::EncodeAcquire(ns, refs, timeout_ms), deadline, late);
  if (!answer.ok()) return answer.status();
  const auto grants = codec::DecodeGrants(answer->payload);
  if (!grants.ok() || grants->shares.size() != refs.size()) {
    // Leases that cannot be named cannot be given back one by one.
    session.lifeline().Break(Unavailable("the broker answered nonsense to an Acquire"));
    return Internal("the broker answered nonsense to an Acquire");
  }
  auto leases = Own(session, *grants);
  if (!leases.ok()) return leases.status();
  std::vector<Acquired> acquired;
  acquired.reserve(refs.size());
  for (size_t i = 0; i < refs.size(); ++i) {
    std::shared_ptr<Lease>& lease = (*leases)[i];
    auto known = Know(session, grants->shares[i].share);
    if (!known.ok()) return known.status();
    const Handle& handle = (*known)->handle;
    auto arena = ArenaOf(session, handle, answer->descriptor, grants->descriptor_arena, deadline);
    if (!arena.ok()) {
      // The broker may think that this client has it, and believes otherwise only when the lease has ended.
      lease->unmapped = true;
      lease->arena_id = handle.arena;
      lease->arena_generation = handle.generation;
      return arena.status();
    }
    lease->arena = *std::move(arena);
    auto views = ViewsOf(session, **known, lease, mode);
    if (!views.ok()) return views.status();
    const Share* const share = &(*known)->share;
    acquired.push_back({std::shared_ptr<const Share>(*std::move(known), share), *std::move(views)});
  }
  return acquired;
}

}  // namespace arraybridge

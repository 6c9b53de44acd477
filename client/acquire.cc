#include "client/acquire.h"

#include "client/arena.h"
#include "client/layout.h"
#include "client/memory/cuda_fence.h"

namespace arraybridge {

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

namespace {

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
  if (!described.arrays.ok()) {
    return InvalidArgument("share '", share.name, "' cannot be read: ", described.arrays.message(),
                           "; its publisher described it so")
        .Because(std::string(described.arrays.reason()));
  }
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

// One that was given back as it came, or a new one.
Result<std::unique_ptr<Mapping>> PrivateMapping(Session& session, ReadArena& arena, uint64_t offset, uint64_t size) {
  if (auto kept = arena.ranges.Take(offset, size)) return kept;
  const auto mapper = session.mappers().Of(arena.handle.kind);
  if (!mapper.ok()) return mapper.status();
  return (*mapper)->MapPrivate(arena.handle, offset, size);
}

// A forked child takes no lock of its parent's and has no reaper: its mapping ends with the view.
Result<std::unique_ptr<Mapping>> MappingInChild(const Lease& lease) {
  const auto mapper = lease.session->mappers().Of(lease.arena->handle.kind);
  if (!mapper.ok()) return mapper.status();
  return (*mapper)->MapPrivate(lease.arena->handle, lease.offset, lease.size);
}

// Dropped ranges that wait for the reaper at most, so that a loop which is quicker than the reaper maps no more than
// the kernel allows (vm.max_map_count).
constexpr uint64_t kPendingRangesMax = 1024;

// View::copy_on_write. The view's owner is its lease.
Result<View> CopyOnWrite(const View& view) {
  const auto lease = std::static_pointer_cast<const Lease>(view.owner);
  const bool child = lease->inherited();
  if (!child && lease->session->reaper().pending() > kPendingRangesMax) lease->session->reaper().CollectReady();
  auto mapping =
      child ? MappingInChild(*lease) : PrivateMapping(*lease->session, *lease->arena, lease->offset, lease->size);
  if (!mapping.ok()) return mapping.status();
  View own = view;
  const auto* const share = lease->arena->shared->data() + lease->offset;
  own.data = (*mapping)->data() + (static_cast<const std::byte*>(view.data) - share);
  own.read_only = false;
  own.constant = false;
  own.copy_on_write = nullptr;
  if (child) {
    using Both = std::pair<std::shared_ptr<const Lease>, std::unique_ptr<Mapping>>;
    own.owner = std::make_shared<const Both>(lease, *std::move(mapping));
    return own;
  }
  auto range = lease->session->reaper().Adopt(std::make_unique<PrivateRange>(lease, *std::move(mapping)));
  if (!range.ok()) return range.status();
  own.owner = *std::move(range);
  return own;
}

Result<KnownArray> Know(const ArraySpec& spec, const Device& device) {
  std::byte anywhere{};  // the address differs from lease to lease
  auto view = Describe(&anywhere, spec.type, spec.shape, spec.strides, device, true, nullptr);
  if (!view.ok()) return view.status();
  view->dtype = spec.dtype;
  view->constant = true;
  const bool empty = view->data == nullptr;
  view->data = nullptr;
  if (device.type == kDeviceCpu && !empty) view->copy_on_write = &CopyOnWrite;
  return KnownArray{*std::move(view), spec.offset, empty};
}

// Checked from now on. REQUIRES: its device is one of this process.
Result<std::shared_ptr<const KnownShare>> Make(Session& session, std::string_view description,
                                               codec::DescribedShare described) {
  auto fresh = std::make_shared<KnownShare>();
  fresh->description = description;
  fresh->share = std::move(described.share);
  fresh->share.broker_id = session.server().info.broker_id;
  fresh->handle = std::move(described.handle);
  fresh->fence = std::move(described.fence);
  for (const ArraySpec& spec : fresh->share.arrays) {
    auto array = Know(spec, fresh->share.device);
    if (!array.ok()) return array.status();
    fresh->arrays.push_back(*std::move(array));
  }
  return std::shared_ptr<const KnownShare>(std::move(fresh));
}

Result<std::shared_ptr<const KnownShare>> Keep(Session& session, std::string_view description,
                                               codec::DescribedShare described) {
  auto made = Make(session, description, std::move(described));
  if (made.ok()) session.known().Add(*made);
  return made;
}

// The range of an arena that is mapped. False: it does not lie there.
bool Lay(const ReadArena& arena, uint64_t offset, uint64_t size, codec::DescribedShare& described) {
  Handle& handle = described.handle;
  handle.kind = arena.handle.kind;
  handle.arena = arena.handle.arena;
  handle.generation = arena.handle.generation;
  handle.arena_size = arena.handle.arena_size;
  handle.device = arena.handle.device;
  handle.opaque = arena.handle.opaque;
  handle.offset = offset;
  handle.size = size;
  Share& share = described.share;
  share.size = size;
  share.device = handle.device;
  share.kind = handle.kind;
  return offset <= handle.arena_size && size <= handle.arena_size - offset;
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
  return Keep(session, description, *std::move(described));
}

// What a held record says of a share, with the arena in which it lies. Null: only an answer can tell.
std::shared_ptr<const KnownShare> Know(Session& session, const catalogue::Facts& facts, const ReadArena& arena,
                                       std::string_view ns, std::string_view name) {
  const auto immutability = facts.enforced ? Immutability::kEnforced : Immutability::kByContract;
  auto known = session.known().Find(facts.share);
  // An event that was told of earlier has happened by now.
  const bool is_it = known && known->fence.done() && known->share.immutability == immutability;
  if (is_it && known->share.name == name) return known;
  if (!facts.described) return nullptr;
  auto described = codec::DecodeDescription(facts.text());
  if (!described.ok()) return nullptr;
  if (!Lay(arena, facts.offset, facts.size, *described)) return nullptr;
  Share& share = described->share;
  share.id = facts.share;
  share.ns = ns;
  share.name = name;
  share.generation = facts.generation;
  share.immutability = immutability;
  share.unnamed = facts.unnamed;
  if (!CheckShare(*described).ok()) return nullptr;
  auto kept = Keep(session, {}, *std::move(described));
  return kept.ok() ? *std::move(kept) : nullptr;
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
  if (of.kind != HandleKind::kMemfd) {
    arena->handle.descriptor.reset();
    session.SayGpus();
  }
  auto added = session.read().Add(arena);
  // Unmapping takes its time: the reaper's business.
  if (session.read().full()) session.reaper().Nudge();
  return added;
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

// At `offset` in the lease's arena. REQUIRES: that is mapped.
Result<std::vector<View>> ViewsAt(Session& session, const KnownShare& known, uint64_t offset,
                                  const std::shared_ptr<Lease>& lease, MapMode mode) {
  const Handle& handle = known.handle;
  std::shared_ptr<const FenceEvent> fence;
  if (!known.fence.done()) {
    auto opened = OpenEvent(handle.device, known.fence.event);
    if (!opened.ok()) return opened.status();
    fence = *std::move(opened);
  }
  const ReadArena& arena = *lease->arena;
  lease->offset = offset;
  lease->size = handle.size;
  std::byte* base = arena.shared->data() + offset;
  // A GPU has no copy-on-write: there everybody reads the arena itself.
  const bool own = mode == MapMode::kPrivate && handle.device.type == kDeviceCpu;
  if (own) {
    auto range = PrivateMapping(session, *lease->arena, offset, handle.size);
    if (!range.ok()) return range.status();
    lease->private_mapping = *std::move(range);
    base = lease->private_mapping->data();
  }
  std::vector<View> views;
  views.reserve(known.arrays.size());
  for (const KnownArray& array : known.arrays) {
    View& view = views.emplace_back(array.view);
    if (!array.empty) view.data = base + array.offset;
    view.read_only = !own;
    if (own) view.copy_on_write = nullptr;
    view.owner = lease;
    view.fence = fence;
  }
  return views;
}

Result<std::vector<View>> ViewsOf(Session& session, const KnownShare& known, const std::shared_ptr<Lease>& lease,
                                  MapMode mode) {
  if (known.handle.arena_size != lease->arena->handle.arena_size) {
    return Internal("the broker changed the size of an arena");
  }
  return ViewsAt(session, known, known.handle.offset, lease, mode);
}

// What the entry describes: the last share, if that was described alike, or a new one.
Result<std::shared_ptr<const KnownShare>> Know(Session& session, DirectConsumer& consumer,
                                               const direct_channel::Entry& entry, const ReadArena& arena,
                                               std::string_view ns, std::string_view channel) {
  if (arena.handle.kind != HandleKind::kMemfd) return InvalidArgument("what was sent is not in host memory");
  const direct_channel::Header header = direct_channel::HeaderOf(entry);
  const std::string_view description = direct_channel::DescriptionOf(entry);
  const uint64_t arena_size = arena.handle.arena_size;
  const bool inside = header.offset <= arena_size && header.size <= arena_size - header.offset;
  if (!inside || header.offset % kArrayAlignment != 0) return InvalidArgument("what was sent lies in no arena");
  if (auto known = consumer.Known(description, header.size); known) {
    return known;
  }
  auto described = codec::DecodeDescription(description);
  if (!described.ok()) return InvalidArgument("what was sent is not described");
  Lay(arena, header.offset, header.size, *described);
  Share& share = described->share;
  share.id = 0;
  share.ns = ns;
  share.name = channel;
  share.generation = 0;
  share.immutability = Immutability::kByContract;
  share.unnamed = true;
  described->fence = {};
  if (Status checked = CheckShare(*described); !checked.ok()) return InvalidArgument(checked.message());
  auto made = Make(session, description, *std::move(described));
  if (made.ok()) consumer.Remember(*made);
  return made;
}

}  // namespace

Status MapSent(Session& session, const direct_channel::Header& entry, uint64_t receiving, Deadline deadline) {
  const auto late = [weak = session.weak_from_this(), arena = entry.arena](const Result<Answer>& answer) {
    const auto self = weak.lock();
    if (self && answer.ok()) self->Post({.leases = {}, .arenas = {}, .unmapped = {arena}});
  };
  const std::string request = codec::EncodeExport(entry.arena, entry.generation, receiving);
  auto answer = session.Call(Verb::kExport, request, deadline, late);
  if (!answer.ok()) return answer.status();
  auto exported = codec::DecodeExported(answer->payload);
  if (!exported.ok()) return exported.status();
  if (exported->arena != entry.arena || exported->generation != entry.generation) {
    return Internal("the broker exported another arena than was asked for");
  }
  const auto mapper = session.mappers().Of(exported->kind);
  if (!mapper.ok()) return mapper.status();
  auto device = (*mapper)->Local(exported->device);
  if (!device.ok()) return device.status();
  exported->device = *std::move(device);
  return MapArena(session, *exported, std::move(answer->descriptor)).status();
}

Result<Acquired> TakeSent(Session& session, const std::shared_ptr<DirectConsumer>& consumer,
                          const direct_channel::Entry& entry, std::shared_ptr<ReadArena> arena, std::string_view ns,
                          std::string_view channel, MapMode mode) {
  const direct_channel::Header header = direct_channel::HeaderOf(entry);
  auto lease = session.reaper().Adopt(std::make_unique<Lease>(session.shared_from_this(), consumer, header.bit));
  if (!lease.ok()) return consumer->Return(header.bit), lease.status();
  auto known = Know(session, *consumer, entry, *arena, ns, channel);
  if (!known.ok()) return known.status();
  (*lease)->arena = std::move(arena);
  auto views = ViewsAt(session, **known, header.offset, *lease, mode);
  if (!views.ok()) return views.status();
  session.direct_producers().Count();
  const Share* const share = &(*known)->share;
  return Acquired{std::shared_ptr<const Share>(*std::move(known), share), *std::move(views)};
}

Result<std::vector<Acquired>> AcquireShares(Session& session, std::string_view ns, std::span<const ShareRef> refs,
                                            MapMode mode, const AcquireWaits& waits, std::string_view note) {
  session.holds().Foresee(session, ns);
  // The lifeline, and what waits in it, dies with the session.
  const auto late = [&session](const Result<Answer>& answer) { GiveBackLate(session, answer); };
  const bool final_only = !session.opens_events();
  const std::string request =
      codec::EncodeAcquire(ns, refs, waits.timeout_ms, final_only, note, waits.fence_timeout_ms);
  auto answer = session.Call(Verb::kAcquire, request, waits.deadline, late);
  if (!answer.ok()) return answer.status();
  auto taken = TakeGranted(session, *std::move(answer), refs.size(), mode, waits.deadline);
  if (taken.status().reason() != "EVENT_NOT_OPENED" || final_only) return taken;
  // Slower, but it works everywhere: from now on this session is told of bytes when they are there.
  session.OpenNoEvents();
  return AcquireShares(session, ns, refs, mode, waits, note);
}

Result<std::vector<Acquired>> TakeGranted(Session& session, Answer answer, size_t count, MapMode mode,
                                          Deadline deadline) {
  const auto grants = codec::DecodeGrants(answer.payload);
  if (!grants.ok() || grants->shares.size() != count) {
    // Leases that cannot be named cannot be given back one by one.
    session.lifeline().Break(Unavailable("the broker answered nonsense to an Acquire"));
    return Internal("the broker answered nonsense to an Acquire");
  }
  auto leases = Own(session, *grants);
  if (!leases.ok()) return leases.status();
  std::vector<Acquired> acquired;
  acquired.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<Lease>& lease = (*leases)[i];
    auto known = Know(session, grants->shares[i].share);
    if (!known.ok()) return known.status();
    const Handle& handle = (*known)->handle;
    auto arena = ArenaOf(session, handle, answer.descriptor, grants->descriptor_arena, deadline);
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

std::optional<Acquired> AcquireHeld(Session& session, std::string_view ns, std::string_view name, uint64_t generation,
                                    MapMode mode) {
  if (!session.lifeline().alive()) return std::nullopt;
  Hold hold = session.holds().Take(ns, name);
  if (!hold) return std::nullopt;
  const catalogue::Facts facts = catalogue::Read(hold.record());
  if (generation != 0 && generation != facts.generation) return std::nullopt;
  auto arena = session.read().Find(facts.arena);
  if (!arena) return std::nullopt;
  auto known = Know(session, facts, *arena, ns, name);
  if (!known) return std::nullopt;
  auto lease = session.reaper().Adopt(std::make_unique<Lease>(session.shared_from_this(), std::move(hold)));
  if (!lease.ok()) return std::nullopt;
  (*lease)->arena = std::move(arena);
  auto views = ViewsOf(session, *known, *lease, mode);
  if (!views.ok()) return std::nullopt;
  const Share* const share = &known->share;
  return Acquired{std::shared_ptr<const Share>(std::move(known), share), *std::move(views)};
}

}  // namespace arraybridge

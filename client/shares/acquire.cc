// SPDX-License-Identifier: Apache-2.0
#include "client/shares/acquire.h"

#include <algorithm>

#include "client/memory/cuda/cuda_fence.h"
#include "client/memory/layout.h"
#include "client/shares/lease.h"
#include "client/shares/private_range.h"
#include "proto/boundary/byte_range.h"

namespace arraybridge {

// A late answer has granted leases although no caller waits for it any more.
void GiveBackLate(Session& session, const Result<Answer>& answer) {
  if (!answer.ok()) return;
  const auto grants = codec::DecodeGrants(answer->payload);
  if (!grants.ok()) return session.lifeline().Break(grants.status());
  codec::Release release;
  for (const auto& grant : grants->shares) release.leases.push_back(grant.lease);
  if (grants->descriptor_arena != 0) release.unmapped.push_back(grants->descriptor_arena);
  session.releases().Post(std::move(release));
}

namespace {

// Generations count anew in each run of the broker.
uint64_t NewerThan(const Session& session, const ShareRef& ref) {
  const bool other = !ref.broker_id.empty() && ref.broker_id != session.server().info.broker_id;
  return other ? 0 : ref.newer_than;
}

Result<std::vector<std::shared_ptr<Lease>>> Own(Session& session, const codec::Grants& grants) {
  std::vector<std::shared_ptr<Lease>> leases;
  leases.reserve(grants.shares.size());
  codec::Release unowned;
  Status failed;
  for (const codec::Grant& grant : grants.shares) {
    auto lease = session.reclaimer().Adopt(std::make_unique<Lease>(session.shared_releases(), grant.lease));
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
      continue;
    }
    unowned.leases.push_back(grant.lease);
    failed = lease.status();
  }
  if (failed.ok()) return leases;
  session.releases().Post(std::move(unowned));
  return failed;
}

Status CheckShare(const codec::DescribedShare& described) {
  const Share& share = described.share;
  const Handle& handle = described.handle;
  if (!described.arrays.ok()) {
    return InvalidArgument("share '", share.name, "' cannot be read: ", described.arrays.message(),
                           "; the publisher's description is invalid")
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

// Reuses an unmodified mapping that was given back, or makes a new one.
Result<std::unique_ptr<PrivateMapping>> MapOwn(ReadArena& arena, uint64_t offset, uint64_t size) {
  if (auto kept = arena.ranges.Take(offset, size)) return kept;
  AB_ASSIGN_OR_RETURN(auto mapping, arena.mapper->MapPrivate(arena.handle, offset, size));
  return std::make_unique<PrivateMapping>(arena.ranges, offset, std::move(mapping));
}

// A forked child must not take its parent's locks and has no reclaimer, so its mapping ends with the view.
Result<std::unique_ptr<Mapping>> MappingInChild(const Lease& lease) {
  return lease.arena->mapper->MapPrivate(lease.arena->handle, lease.offset, lease.size);
}

// The most dropped ranges that may wait for the reclaimer. It keeps a loop that is faster than the reclaimer within the
// kernel's limit on mappings (vm.max_map_count).
constexpr uint64_t kPendingRangesMax = 1024;

// Implements View::copy_on_write. The view's owner is its lease.
Result<View> CopyOnWrite(const View& view) {
  const auto lease = std::static_pointer_cast<const Lease>(view.owner);
  const bool child = lease->inherited();
  if (!child && lease->reclaimer().pending() > kPendingRangesMax) lease->reclaimer().CollectReady();
  View own = view;
  const auto* const share = lease->arena->shared->data() + lease->offset;
  const auto inside = static_cast<const std::byte*>(view.data) - share;
  own.read_only = false;
  own.constant = false;
  own.copy_on_write = nullptr;
  if (child) {
    AB_ASSIGN_OR_RETURN(auto mapping, MappingInChild(*lease));
    own.data = mapping->data() + inside;
    using Both = std::pair<std::shared_ptr<const Lease>, std::unique_ptr<Mapping>>;
    own.owner = std::make_shared<const Both>(lease, std::move(mapping));
    return own;
  }
  AB_ASSIGN_OR_RETURN(auto mapping, MapOwn(*lease->arena, lease->offset, lease->size));
  own.data = mapping->data() + inside;
  AB_ASSIGN_OR_RETURN(own.owner, lease->reclaimer().Adopt(std::make_unique<PrivateRange>(lease, std::move(mapping))));
  return own;
}

Result<KnownArray> DecodeKnown(const ArraySpec& spec, const Device& device) {
  std::byte anywhere{};  // a placeholder; the address differs between leases
  AB_ASSIGN_OR_RETURN(auto view, Describe(&anywhere, spec.type, spec.shape, spec.strides, device, true, nullptr));
  view.dtype = spec.dtype;
  view.constant = true;
  const bool empty = view.data == nullptr;
  view.data = nullptr;
  if (device.type == kDeviceCpu && !empty) view.copy_on_write = &CopyOnWrite;
  return KnownArray{std::move(view), spec.offset, empty};
}

// Converts a checked share. REQUIRES: its device is a local one.
Result<std::shared_ptr<const KnownShare>> Make(Session& session, std::string_view description,
                                               codec::DescribedShare described) {
  auto fresh = std::make_shared<KnownShare>();
  fresh->description = description;
  fresh->share = std::move(described.share);
  fresh->share.broker_id = session.server().info.broker_id;
  fresh->handle = std::move(described.handle);
  fresh->fence = std::move(described.fence);
  for (const ArraySpec& spec : fresh->share.arrays) {
    AB_ASSIGN_OR_RETURN(auto array, DecodeKnown(spec, fresh->share.device));
    fresh->arrays.push_back(std::move(array));
  }
  return std::shared_ptr<const KnownShare>(std::move(fresh));
}

Result<std::shared_ptr<const KnownShare>> Keep(Session& session, std::string_view description,
                                               codec::DescribedShare described) {
  auto made = Make(session, description, std::move(described));
  if (made.ok()) session.known().Add(*made);
  return made;
}

// Sets the share's range in a mapped arena. Returns false if the range lies outside the arena.
bool SetRange(const ReadArena& arena, uint64_t offset, uint64_t size, codec::DescribedShare& described) {
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
  return ByteRange{0, handle.arena_size}.Contains({offset, size});
}

Result<std::shared_ptr<const KnownShare>> DecodeKnown(Session& session, std::string_view description) {
  if (auto known = session.known().Find(description)) return known;
  auto described = codec::DecodeShare(description);
  if (!described.ok()) {
    // The connection ends, because no other answer of such a broker can be trusted.
    session.lifeline().Break(Unavailable("the broker sent a malformed answer to an Acquire"));
    return Internal("the broker sent a malformed answer to an Acquire");
  }
  AB_RETURN_IF_ERROR(CheckShare(*described));
  AB_ASSIGN_OR_RETURN(auto mapper, session.mappers().Of(described->handle.kind));
  AB_ASSIGN_OR_RETURN(auto device, mapper->Local(described->handle.device));
  described->handle.device = described->share.device = std::move(device);
  return Keep(session, description, *std::move(described));
}

// The share of a held catalogue record, in the given arena. Null if a request is needed.
std::shared_ptr<const KnownShare> DecodeKnown(Session& session, const catalogue::Facts& facts, const ReadArena& arena,
                                              std::string_view ns, std::string_view name) {
  const auto immutability = facts.enforced ? Immutability::kEnforced : Immutability::kByContract;
  auto known = session.known().Find(facts.share);
  // The bytes of a share in the catalogue are written, so a cached description with an event is out of date.
  const bool is_it = known && known->fence.done() && known->share.immutability == immutability;
  if (is_it && known->share.name == name) return known;
  if (!facts.described) return nullptr;
  auto described = codec::DecodeDescription(facts.text());
  if (!described.ok()) return nullptr;
  if (!SetRange(arena, facts.offset, facts.size, *described)) return nullptr;
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
  AB_ASSIGN_OR_RETURN(const auto mapper, session.mappers().Of(of.kind));
  AB_ASSIGN_OR_RETURN(arena->shared, mapper->Map(arena->handle, of.device, Access::kRead));
  arena->mapper = mapper;
  if (of.kind != HandleKind::kMemfd) session.ReportGpus();
  auto added = session.read().Add(arena);
  // Unmapping is slow, so the reclaimer's thread does it.
  if (session.read().full()) session.reclaimer().Nudge();
  return added;
}

// Handles the answer to an Export whose caller has given up. The session outlives the handler.
Lifeline::CompletionHandler UnmapLate(Session& session, uint64_t arena) {
  return [&session, arena](const Result<Answer>& answer) {
    if (answer.ok()) session.releases().Post({{.unmapped = {arena}}});
  };
}

// The arena is mapped already, came with this answer, or is requested.
Result<std::shared_ptr<ReadArena>> ArenaOf(Session& session, const Handle& of, UniqueFd& arrived,
                                           uint64_t arrived_arena, Deadline deadline) {
  if (auto known = session.read().Find(of.arena, of.generation)) return known;
  const bool here = of.kind == HandleKind::kCudaIpc || (arrived.valid() && arrived_arena == of.arena);
  if (here) return MapArena(session, of, std::move(arrived));
  const auto handler = UnmapLate(session, of.arena);
  const wire::ExportRequest request{.arena = of.arena, .arena_generation = of.generation};
  AB_ASSIGN_OR_RETURN(auto answer, session.Call(Verb::kExport, wire::Encode(request), deadline, handler));
  AB_ASSIGN_OR_RETURN(auto exported, codec::DecodeExported(answer.payload));
  if (exported.arena != of.arena || exported.generation != of.generation) {
    return Internal("the broker exported an arena that was not requested");
  }
  exported.device = of.device;
  return MapArena(session, exported, std::move(answer.descriptor));
}

// The views of a share at `offset` in the lease's arena. REQUIRES: the arena is mapped.
Result<std::vector<View>> ViewsAt(const KnownShare& known, uint64_t offset, const std::shared_ptr<Lease>& lease,
                                  MapMode mode) {
  const Handle& handle = known.handle;
  std::shared_ptr<const FenceEvent> fence;
  if (!known.fence.done()) {
    AB_ASSIGN_OR_RETURN(
        fence, OpenEvent(handle.device, known.fence.event, [lease] { return lease->releases->MakerEnded(lease->id); }));
  }
  const ReadArena& arena = *lease->arena;
  lease->offset = offset;
  lease->size = handle.size;
  std::byte* base = arena.shared->data() + offset;
  // A GPU has no copy-on-write, so all readers read the arena itself.
  const bool own = mode == MapMode::kPrivate && handle.device.type == kDeviceCpu;
  if (own) {
    AB_ASSIGN_OR_RETURN(lease->private_mapping, MapOwn(*lease->arena, offset, handle.size));
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

Result<std::vector<View>> ViewsOf(const KnownShare& known, const std::shared_ptr<Lease>& lease, MapMode mode) {
  if (known.handle.arena_size != lease->arena->handle.arena_size) {
    return Internal("the broker changed the size of an arena");
  }
  return ViewsAt(known, known.handle.offset, lease, mode);
}

// The share that an entry describes: the last share of this direct channel if the description is the same.
Result<std::shared_ptr<const KnownShare>> DecodeKnown(Session& session, DirectConsumer& consumer,
                                                      const direct_channel::Entry& entry, const ReadArena& arena,
                                                      std::string_view ns, std::string_view channel) {
  if (arena.handle.kind != HandleKind::kMemfd) return InvalidArgument("the sent array is not in host memory");
  const direct_channel::Header header = direct_channel::HeaderOf(entry);
  const std::string_view description = direct_channel::DescriptionOf(entry);
  const bool inside = ByteRange{0, arena.handle.arena_size}.Contains({header.offset, header.size});
  if (!inside || header.offset % kArrayAlignment != 0) return InvalidArgument("the sent array lies outside its arena");
  if (auto known = consumer.Known(description, header.size); known) {
    return known;
  }
  auto described = codec::DecodeDescription(description);
  if (!described.ok()) return InvalidArgument("the description of the sent array does not parse");
  SetRange(arena, header.offset, header.size, *described);
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
  const auto handler = UnmapLate(session, entry.arena);
  const wire::ExportRequest request{
      .arena = entry.arena, .arena_generation = entry.generation, .direct_channel_of = receiving};
  AB_ASSIGN_OR_RETURN(auto answer, session.Call(Verb::kExport, wire::Encode(request), deadline, handler));
  AB_ASSIGN_OR_RETURN(auto exported, codec::DecodeExported(answer.payload));
  if (exported.arena != entry.arena || exported.generation != entry.generation) {
    return Internal("the broker exported an arena that was not requested");
  }
  if (session.read().Find(entry.arena, entry.generation)) return Ok();
  AB_ASSIGN_OR_RETURN(const auto mapper, session.mappers().Of(exported.kind));
  AB_ASSIGN_OR_RETURN(exported.device, mapper->Local(exported.device));
  return MapArena(session, exported, std::move(answer.descriptor)).status();
}

Result<Acquired> TakeSent(Session& session, const std::shared_ptr<DirectConsumer>& consumer,
                          const direct_channel::Entry& entry, std::shared_ptr<ReadArena> arena, std::string_view ns,
                          std::string_view channel, MapMode mode) {
  const direct_channel::Header header = direct_channel::HeaderOf(entry);
  auto lease = session.reclaimer().Adopt(std::make_unique<Lease>(session.shared_releases(), consumer, header.bit));
  if (!lease.ok()) return consumer->Return(header.bit), lease.status();
  AB_ASSIGN_OR_RETURN(auto known, DecodeKnown(session, *consumer, entry, *arena, ns, channel));
  (*lease)->arena = std::move(arena);
  AB_ASSIGN_OR_RETURN(auto views, ViewsAt(*known, header.offset, *lease, mode));
  session.direct_producers().Count();
  const Share* const share = &known->share;
  return Acquired{std::shared_ptr<const Share>(std::move(known), share), std::move(views), {}};
}

std::optional<Acquired> TryAcquire(Session& session, std::string_view ns, const ShareRef& ref, MapMode mode) {
  if (!session.lifeline().alive()) return std::nullopt;
  HazardSlot hold = session.hazards().Take(ns, ref.name);
  if (!hold) return std::nullopt;
  const catalogue::Facts facts = catalogue::Read(hold.record());
  if (ref.generation != 0 && ref.generation != facts.generation) return std::nullopt;
  if (facts.generation <= NewerThan(session, ref)) return std::nullopt;
  auto arena = session.read().Find(facts.arena);
  if (!arena) return std::nullopt;
  auto known = DecodeKnown(session, facts, *arena, ns, ref.name);
  if (!known) return std::nullopt;
  auto lease = session.reclaimer().Adopt(std::make_unique<Lease>(session.shared_releases(), std::move(hold)));
  if (!lease.ok()) return std::nullopt;
  (*lease)->arena = std::move(arena);
  auto views = ViewsOf(*known, *lease, mode);
  if (!views.ok()) return std::nullopt;
  const Share* const share = &known->share;
  return Acquired{std::shared_ptr<const Share>(std::move(known), share), *std::move(views), {}};
}

Result<std::vector<Acquired>> Acquire(Session& session, std::string_view ns, std::span<const ShareRef> refs,
                                      MapMode mode, const AcquireWaits& waits, std::string_view note) {
  session.hazards().Prefetch(ns);
  std::vector<ShareRef> of_this_run;
  if (std::ranges::any_of(refs, [&](const ShareRef& ref) { return ref.newer_than != NewerThan(session, ref); })) {
    of_this_run.assign(refs.begin(), refs.end());
    for (ShareRef& ref : of_this_run) ref.newer_than = NewerThan(session, ref);
    refs = of_this_run;
  }
  // The session owns the lifeline and therefore outlives its handlers.
  const auto handler = [&session](const Result<Answer>& answer) { GiveBackLate(session, answer); };
  const bool final_only = !session.opens_events();
  const std::string request = wire::Encode(wire::AcquireRequest{.namespace_ = ns,
                                                                .shares = codec::RefsOf(refs),
                                                                .timeout_ms = waits.timeout_ms,
                                                                .final_only = final_only,
                                                                .note = note,
                                                                .fence_timeout_ms = waits.fence_timeout_ms});
  AB_ASSIGN_OR_RETURN(auto answer, session.Call(Verb::kAcquire, request, waits.deadline, handler));
  auto taken = TakeGranted(session, std::move(answer), refs.size(), mode, waits.deadline);
  if (taken.status().reason() != "EVENT_NOT_OPENED" || final_only) return taken;
  // Slower, but it works everywhere: from now on the broker answers this session only once the bytes are written.
  session.OpenNoEvents();
  return Acquire(session, ns, refs, mode, waits, note);
}

Result<std::vector<Acquired>> TakeGranted(Session& session, Answer answer, size_t count, MapMode mode,
                                          Deadline deadline) {
  const auto grants = codec::DecodeGrants(answer.payload);
  if (!grants.ok() || grants->shares.size() != count) {
    // The leases are unknown, so they cannot be given back one by one.
    session.lifeline().Break(Unavailable("the broker sent a malformed answer to an Acquire"));
    return Internal("the broker sent a malformed answer to an Acquire");
  }
  AB_ASSIGN_OR_RETURN(auto leases, Own(session, *grants));
  std::vector<Acquired> acquired;
  acquired.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<Lease>& lease = leases[i];
    AB_ASSIGN_OR_RETURN(auto known, DecodeKnown(session, grants->shares[i].share));
    const Handle& handle = known->handle;
    auto arena = ArenaOf(session, handle, answer.descriptor, grants->descriptor_arena, deadline);
    if (!arena.ok()) {
      // The broker may assume that this client has the arena mapped. The release of the lease corrects that.
      lease->unmapped = true;
      lease->arena_id = handle.arena;
      lease->arena_generation = handle.generation;
      return arena.status();
    }
    lease->arena = *std::move(arena);
    if (handle.kind == HandleKind::kMemfd) lease->arena->leases.Add(handle.offset, handle.size, lease->id);
    AB_ASSIGN_OR_RETURN(auto views, ViewsOf(*known, lease, mode));
    const Share* const share = &known->share;
    acquired.push_back(
        {std::shared_ptr<const Share>(std::move(known), share), std::move(views), grants->shares[i].sent});
  }
  return acquired;
}

}  // namespace arraybridge

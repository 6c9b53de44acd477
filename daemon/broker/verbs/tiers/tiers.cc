// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/verbs/tiers/tiers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/broker/tables/tiers/disk_arena.h"
#include "daemon/broker/verbs/state.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

Status Gone(const SharePlace& place) {
  return NotFound("the share with id ", Number(place.share), " of namespace '", place.ns, "' was withdrawn or replaced")
      .Because("SHARE_GONE");
}

// Another thread has moved it, or has found its file damaged.
Status Changed(const Share& share) {
  return FailedPrecondition("share '", share.facts->name, "' of namespace '", share.ns->name(),
                            "' is being moved by another request: try again")
      .Because("SHARE_IN_USE");
}

std::chrono::system_clock::time_point ExpiryOf(const Share& share) {
  using System = std::chrono::system_clock;
  if (!share.expires) return {};
  return System::now() + std::chrono::duration_cast<System::duration>(*share.expires - Clock::now());
}

TieredRow RowOf(const Share& share) {
  TieredRow row{{share.ns->uid(), share.ns->name(), share.facts->id},
                {share.facts, share.ns->uid(), share.maker_uid, share.size, share.note, share.rank, ExpiryOf(share)},
                {},
                !share.arena->is_on_disk()};
  if (share.stored != nullptr) row.stored = *share.stored;
  return row;
}

// CheckMovable, and no process reads it without a call.
Status CheckIdle(const Share& share) {
  AB_RETURN_IF_ERROR(CheckMovable(share));
  if (share.ns->hazards.IsKnownUnheld(share)) return Ok();
  return FailedPrecondition("share '", share.facts->name, "' of namespace '", share.ns->name(),
                            "' stays in memory: a process reads it, or has read it just now: try again")
      .Because("SHARE_IN_USE");
}

// Its bytes are, or were, in a file.
bool HasFile(const Share& share) { return share.stored != nullptr || share.arena->is_on_disk(); }

Share* ShareAt(const Namespaces& namespaces, const SharePlace& place) {
  const Namespace* const ns = namespaces.Find({place.owner, place.ns});
  return ns == nullptr ? nullptr : ns->FindById(place.share);
}

// The backend of host memory, and its device.
std::optional<Backends::Served> HostOf(const Backends& backends) {
  for (MemoryBackend* const each : backends.all()) {
    if (each->kind() == HandleKind::kMemfd) return Backends::Served{each, each->devices().front()};
  }
  return std::nullopt;
}

}  // namespace

Tiers::Reserved::Reserved() = default;
Tiers::Reserved::Reserved(Reserved&&) noexcept = default;
Tiers::Reserved::~Reserved() = default;
const std::shared_ptr<MemoryBlock>& Tiers::Reserved::block() const { return arena_->block(); }

Result<SharePlace> Tiers::Find(SessionId session, std::string_view ns, const ShareKey& key, Right right) const {
  const Broker::State& state = *broker_.state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto place, state.rights.KeyOf(found->peer, ns, right));
  const Share* const share = FindShare(state.namespaces.Find(place), key);
  if (share == nullptr) return NoShare(ns, key, state.config.limits);
  return SharePlace{place.uid, std::string(place.name), share->facts->id};
}

Result<Tiers::Looked> Tiers::Look(const SharePlace& place) const {
  const Broker::State& state = *broker_.state_;
  const MutexLock lock(state.mutex);
  const Share* const share = ShareAt(state.namespaces, place);
  if (share == nullptr) return Gone(place);
  Looked looked{.row = RowOf(*share), .block = {}, .offset = share->offset, .movable = Ok()};
  if (!looked.row.in_memory) return looked;
  looked.block = share->arena->block();
  looked.arena = share->arena->id();
  looked.movable = CheckIdle(*share);
  looked.is_complete = share->fence.done();
  return looked;
}

Tiers::HostBytes Tiers::HostUse() const {
  const auto host = HostOf(broker_.state_->backends);
  if (!host) return {};
  const MemoryBackend::Usage usage = host->backend->usage(host->device);
  return {usage.allocated_bytes - usage.cached_bytes, usage.capacity_bytes};
}

// A reader without a call sees that the catalogue's record is retired, or has written a word that is seen here.
Status Tiers::MoveOut(const SharePlace& place, ArenaId from, Stored fresh) {
  Broker::State& state = *broker_.state_;
  const auto generation = RandomBytes<uint64_t>();
  const MutexLock lock(state.mutex);
  Share* const share = ShareAt(state.namespaces, place);
  if (share == nullptr) return Gone(place);
  if (share->arena->is_on_disk()) return Ok();
  const bool has_file = !FileOf(share->stored).empty();
  if (share->arena->id() != from || (!has_file && fresh.file.empty())) return Changed(*share);
  AB_RETURN_IF_ERROR(CheckIdle(*share));
  AB_RETURN_IF_ERROR(state.journal.CheckRoom(DescriptionBytes(*share) + share->facts->name.size()));
  Namespace& ns = *share->ns;
  ns.hazards.Retire(*share);
  static_cast<void>(Failpoint("tier_retired"));
  AB_RETURN_IF_ERROR(CheckIdle(*share));
  auto made = MakeDiskArena(state.arenas.NextId(), generation, ns, share->size);
  made->maker_uid = share->maker_uid;
  Arena& arena = *made;
  state.arenas.Restore(nullptr, std::move(made));
  state.journal.Put(arena);
  static_cast<void>(Failpoint("tier_place_recorded"));
  if (!has_file) share->stored = std::make_unique<Stored>(std::move(fresh));
  state.shares.Move(*share, arena);
  state.flags.sweep_wanted.store(true);
  return Ok();
}

Status Tiers::SetRank(const SharePlace& place, Rank rank) {
  Broker::State& state = *broker_.state_;
  const MutexLock lock(state.mutex);
  Share* const share = ShareAt(state.namespaces, place);
  if (share == nullptr) return Gone(place);
  AB_RETURN_IF_ERROR(state.journal.CheckRoom(DescriptionBytes(*share) + share->facts->name.size()));
  share->rank = rank;
  state.journal.Put(*share);
  return Ok();
}

Status Tiers::Keep(const SharePlace& place, ArenaId from, Stored file) {
  Broker::State& state = *broker_.state_;
  const MutexLock lock(state.mutex);
  Share* const share = ShareAt(state.namespaces, place);
  if (share == nullptr) return Gone(place);
  if (share->arena->id() != from) return Changed(*share);
  AB_RETURN_IF_ERROR(state.journal.CheckRoom(DescriptionBytes(*share) + share->facts->name.size()));
  share->stored = std::make_unique<Stored>(std::move(file));
  state.journal.Put(*share);
  static_cast<void>(Failpoint("tier_keep_recorded"));
  return Ok();
}

Result<Tiers::Reserved> Tiers::Reserve(const SharePlace& place) {
  Broker::State& state = *broker_.state_;
  const auto host = HostOf(state.backends);
  if (!host)
    return FailedPrecondition("the broker serves no host memory to read the bytes into").Because("NO_HOST_MEMORY");
  std::optional<Charge> charge;
  Namespace* ns = nullptr;  // lives as long as the charge does
  ArenaId id{};
  uint64_t size = 0;
  uint32_t maker_uid = 0;
  {
    const MutexLock lock(state.mutex);
    const Share* const share = ShareAt(state.namespaces, place);
    if (share == nullptr) return Gone(place);
    AB_RETURN_IF_ERROR(state.journal.CheckRoom());
    ns = share->ns;
    size = share->size;
    maker_uid = share->maker_uid;
    AB_ASSIGN_OR_RETURN(auto granted, ns->ChargeFor(host->backend->Footprint(host->device, size),
                                                    state.accounts.Of(maker_uid)->memory));
    charge.emplace(std::move(granted));
    id = state.arenas.NextId();
  }
  AB_ASSIGN_OR_RETURN(auto allocated, host->backend->Allocate(host->device, size));
  std::shared_ptr<MemoryBlock> block = std::move(allocated);
  StoreGuard stored;
  if (const int file = block->descriptor(); file >= 0) {
    AB_ASSIGN_OR_RETURN(stored, state.journal.Store(StoredName(kStoredArena, Number(id)), {&file, 1},
                                                    DescriptorStore::Until::kHandled));
  }
  Reserved reserved;
  reserved.arena_ = std::make_unique<Arena>(id, RandomBytes<uint64_t>(), ns, nullptr, *std::move(charge),
                                            std::move(block), host->device, HandleKind::kMemfd);
  reserved.arena_->maker_uid = maker_uid;
  reserved.arena_->stored = std::move(stored);
  return reserved;
}

Result<Stored> Tiers::MoveIn(const SharePlace& place, Reserved reserved) {
  Broker::State& state = *broker_.state_;
  const auto sealed = reserved.arena_->block()->sealed();
  Stored file;
  const MutexLock lock(state.mutex);
  Share* const share = ShareAt(state.namespaces, place);
  if (share == nullptr) return Gone(place);
  if (!share->arena->is_on_disk()) return Stored();  // another thread has read them
  if (share->stored == nullptr) return Changed(*share);
  AB_RETURN_IF_ERROR(state.journal.CheckRoom(DescriptionBytes(*share) + share->facts->name.size()));
  Arena& arena = *reserved.arena_;
  arena.immutability = sealed.value_or(Immutability::kByContract);
  state.arenas.Restore(nullptr, std::move(reserved.arena_));
  state.journal.Put(arena);
  static_cast<void>(Failpoint("tier_memory_recorded"));
  file = *share->stored;
  if (!file.durable) share->stored.reset();
  state.shares.Move(*share, arena);
  state.hazards.Insert(*share);
  return file;
}

void Tiers::Lose(const SharePlace& place, std::string_view damaged) {
  Broker::State& state = *broker_.state_;
  Stored file;  // destroyed after the lock
  const MutexLock lock(state.mutex);
  Share* const share = ShareAt(state.namespaces, place);
  if (share == nullptr || share->stored == nullptr || share->stored->file != damaged) return;
  file = std::move(*share->stored);
  share->stored = share->arena->is_on_disk() ? std::make_unique<Stored>() : nullptr;
  state.journal.Put(*share);
}

Result<Tiers::Listed> Tiers::List(SessionId session, std::string_view ns, uint64_t after) const {
  const Broker::State& state = *broker_.state_;
  Listed listed;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto place, state.rights.KeyOf(found->peer, ns, Right::kRead));
  const Namespace* const of = state.namespaces.Find(place);
  if (of == nullptr) return listed;
  int visits = 0;
  for (auto at = of->shares().upper_bound(ShareId{after}); at != of->shares().end(); ++at) {
    const Share& share = *at->second;
    if (HasFile(share) && !share.withdrawn) listed.rows.push_back(RowOf(share));
    if (++visits < kSharesMax) continue;
    listed.next = Number(at->first);
    break;
  }
  return listed;
}

std::vector<TieredRow> Tiers::All() const {
  const Broker::State& state = *broker_.state_;
  std::vector<TieredRow> rows;
  const MutexLock lock(state.mutex);
  for (const auto& [key, ns] : state.namespaces.all()) {
    for (const auto& [id, share] : ns->shares()) {
      if (HasFile(*share)) rows.push_back(RowOf(*share));
    }
  }
  return rows;
}

void Tiers::Own(const SharePlace& place, std::shared_ptr<const void> owner) {
  Broker::State& state = *broker_.state_;
  const MutexLock lock(state.mutex);
  Share* const share = ShareAt(state.namespaces, place);
  if (share != nullptr && share->stored != nullptr) share->stored->owner = std::move(owner);
}

bool Tiers::is_first() const {
  Broker::State& state = *broker_.state_;
  const MutexLock lock(state.mutex);
  return !state.journal.keeps() || state.journal.word(record::kLives) <= 1;
}

Status Tiers::Import(const ShareLabel& label, Stored stored) {
  Broker::State& state = *broker_.state_;
  auto facts = std::make_shared<ShareFacts>();
  facts->ns = label.facts->ns;
  facts->name = label.facts->name;
  facts->generation = label.facts->generation;
  facts->description = label.facts->description;
  const uint64_t name_bytes_max = state.config.limits.name_bytes_max;
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", facts->ns, name_bytes_max));
  AB_RETURN_IF_ERROR(CheckName("the share's name", facts->name, name_bytes_max));
  auto share = std::make_unique<Share>();
  share->size = label.size;
  share->maker_uid = label.maker_uid;
  share->maker_client = std::make_shared<const std::string>();
  share->born = Clock::now();
  if (label.expires != std::chrono::system_clock::time_point{}) {
    const auto left = label.expires - std::chrono::system_clock::now();
    if (left.count() <= 0) return AlreadyExists("its lifetime is over");
    share->expires = share->born + std::chrono::duration_cast<Clock::duration>(left);
  }
  share->note = label.note;
  share->rank = label.rank;
  share->stored = std::make_unique<Stored>(std::move(stored));
  const auto generation = RandomBytes<uint64_t>();
  const MutexLock lock(state.mutex);
  AB_RETURN_IF_ERROR(state.journal.CheckRoom(facts->description.size() + share->note.size() + facts->name.size()));
  AB_ASSIGN_OR_RETURN(Namespace* const ns, state.namespaces.FindOrMake({label.owner, facts->ns}, label.maker_uid));
  if (ns->FindByName(facts->name) != nullptr) return AlreadyExists("a newer share has this name");
  facts->id = state.shares.NextId();
  state.shares.generations.SkipTo(facts->generation);
  auto made = MakeDiskArena(state.arenas.NextId(), generation, *ns, label.size);
  made->maker_uid = label.maker_uid;
  share->facts = std::move(facts);
  share->ns = ns;
  share->arena = made.get();
  made->Carve(0, share.get());
  state.journal.Put(*made);
  state.journal.Put(*share);
  state.arenas.Restore(nullptr, std::move(made));
  Account& account = *state.accounts.Of(label.maker_uid);
  ++account.shares;
  account.description_bytes += DescriptionBytes(*share);
  static_cast<void>(state.shares.Limit(*share));
  ns->Add(std::move(share));
  return Ok();
}

Status Tiers::Restore(Namespaces& namespaces, Arenas& arenas, const record::Arena& its, uint32_t record) {
  AB_ASSIGN_OR_RETURN(const auto ns, namespaces.FindOrMake({its.ns_uid, its.ns}, its.maker_uid));
  auto arena = MakeDiskArena(ArenaId{its.id}, its.generation, *ns, its.size);
  arena->maker_uid = its.maker_uid;
  arena->record = record;
  arenas.Restore(nullptr, std::move(arena));
  return Ok();
}

}  // namespace arraybridge::daemon

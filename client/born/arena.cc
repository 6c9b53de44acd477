// SPDX-License-Identifier: Apache-2.0
#include "client/born/arena.h"

#include <fcntl.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "client/born/mapping.h"
#include "client/pages/page_scan.h"
#include "client/shares/placement.h"

namespace arraybridge {
namespace {

// How many times the broker may answer with returned ranges instead of an arena.
constexpr int kArenaAsksMax = 8;

// Of Range::least: no array is large enough to be published in place.
constexpr uint64_t kParted = std::numeric_limits<uint64_t>::max();

BornMapping& BornMappingOf(const Placement::Range& range) { return static_cast<BornMapping&>(range.arena->mapping()); }

Result<std::unique_ptr<Mapping>> MapBorn(const Session& session, const Handle& handle, uint64_t bytes) {
  if (handle.arena_size < bytes || handle.kind != HandleKind::kMemfd) {
    return Internal("the broker allocated ", handle.arena_size, " bytes instead of ", bytes, " of host memory");
  }
  // Opened before the mapper may close the descriptor; without /proc it stays invalid.
  const std::string path = "/proc/self/fd/" + std::to_string(handle.descriptor.get());
  UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  AB_ASSIGN_OR_RETURN(MemoryMapper* const mapper, session.mappers().Of(handle.kind));
  AB_ASSIGN_OR_RETURN(auto mapping, mapper->Map(handle, Device{}, Access::kWrite));
  return std::unique_ptr<Mapping>(std::make_unique<BornMapping>(std::move(mapping), std::move(reader)));
}

// The arena is marked as one of its own, so that nothing else is carved from it.
Result<std::shared_ptr<Placement::Range>> Anchored(Session& session, Handle handle, uint64_t bytes, Deadline deadline) {
  const uint64_t id = handle.arena;
  handle.device = Device{};
  auto mapping = MapBorn(session, handle, bytes);
  handle.descriptor.reset();  // when the broker seals the arena, this process may have a mapping only
  if (!mapping.ok()) {
    session.releases().Post({{.arenas = {id}}});
    return mapping.status();
  }
  auto arena = std::make_shared<WrittenArena>(handle, *std::move(mapping), true);
  arena->continued = session.lifeline().continued();
  const wire::MappedRequest mapped{.arena = id};
  AB_RETURN_IF_ERROR(session.lifeline().Post(Verb::kMapped, wire::Encode(mapped), deadline));
  const auto carving = session.written().Add(std::move(arena), BornPage());
  auto range = session.reclaimer().Adopt(
      std::make_unique<Placement::Range>(session.shared_releases(), carving.arena, carving.offset, BornPage()));
  if (!range.ok()) session.written().ReleaseLocal(id, carving.offset);
  return range;
}

}  // namespace

uint64_t BornPage() { return PageBytes(); }

uint64_t BornPagesOf(uint64_t bytes) {
  const uint64_t page = BornPage();
  if (bytes > std::numeric_limits<uint64_t>::max() - page) return 0;
  return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

Result<BornArena> BornArena::Fetch(Connection& connection, std::string_view ns, uint64_t bytes, Deadline deadline) {
  const uint64_t room = BornPagesOf(bytes);
  const uint64_t size = room == 0 ? 0 : BornPagesOf(room + BornPage());
  if (size == 0) return ResourceExhausted("no arena has ", bytes, " bytes");
  AB_ASSIGN_OR_RETURN(const auto session, connection.Connected(deadline));
  for (int asks = 0; asks < kArenaAsksMax; ++asks) {
    AB_ASSIGN_OR_RETURN(auto handle, AskForArena(*session, ns, Device{}, size, 0, deadline));
    if (!handle) continue;
    AB_ASSIGN_OR_RETURN(auto anchor, Anchored(*session, *std::move(handle), size, deadline));
    return BornArena(std::move(anchor));
  }
  return ResourceExhausted("the broker returned ranges instead of an arena of ", size, " bytes");
}

std::shared_ptr<Placement::Range> BornArena::Carve(uint64_t bytes) {
  WrittenArenas& written = anchor_->releases->written();
  const auto carving = written.CarveIn(*anchor_->arena, bytes);
  if (!carving) return nullptr;
  auto range = anchor_->reclaimer().Adopt(
      std::make_unique<Placement::Range>(anchor_->releases, carving->arena, carving->offset, bytes));
  if (!range.ok()) {
    written.ReleaseLocal(*carving->arena, carving->offset);
    return nullptr;
  }
  written.Name(*carving, *range);
  used_ = CoarseNow();
  return *std::move(range);
}

bool BornArena::HasRoom(uint64_t bytes) const {
  WrittenArenas& written = anchor_->releases->written();
  const auto carving = written.CarveIn(*anchor_->arena, bytes);
  if (carving) written.ReleaseLocal(*carving->arena, carving->offset);
  return carving.has_value();
}

bool BornArena::is_shared() const { return !BornMappingOf(*anchor_).is_private(); }

void BornArena::Abandon() { BornMappingOf(*anchor_).Abandon(); }

bool IsAbandoned(const Placement::Range& range) {
  return !range.arena->is_mapped() || BornMappingOf(range).is_abandoned();
}

bool Part(Placement::Range& range) noexcept {
  auto* const mapping = range.arena->is_mapped() ? dynamic_cast<BornMapping*>(&range.arena->mapping()) : nullptr;
  if (mapping == nullptr || !mapping->Part(range.offset, range.size)) return false;
  range.least.store(kParted);
  return true;
}

bool IsParted(const Placement::Range& range) { return range.least.load() == kParted; }

bool Join(Placement::Range& range) noexcept {
  return !range.arena->is_mapped() || BornMappingOf(range).is_private() || BornMappingOf(range).Join(range.offset);
}

void MakePrivate(Placement::Range& range) noexcept {
  if (range.arena->is_mapped() && BornMappingOf(range).MakePrivate()) range.published.store(true);
}

}  // namespace arraybridge

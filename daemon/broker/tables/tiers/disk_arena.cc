// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/tiers/disk_arena.h"

#include <utility>

#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/tables/shares.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

class DiskBlock final : public MemoryBlock {
 public:
  explicit DiskBlock(uint64_t size) : size_(size) {}

  uint64_t size() const override { return size_; }
  Result<Handle> Export(Access) const override { return FailedPrecondition("the bytes are in a file"); }
  Result<Immutability> Seal() override { return Immutability::kEnforced; }
  bool HeldElsewhere() const override { return false; }
  bool MayBeEnforced() const override { return false; }
  std::optional<Immutability> sealed() const override { return Immutability::kEnforced; }

 private:
  const uint64_t size_;
};

template <class... Parts>
Status InUse(const Share& share, const Parts&... why) {
  return FailedPrecondition("share '", share.facts->name, "' of namespace '", share.ns->name(),
                            "' stays in memory: ", why...)
      .Because("SHARE_IN_USE");
}

template <class... Parts>
Status NotMovable(const Share& share, const Parts&... why) {
  return FailedPrecondition("share '", share.facts->name, "' of namespace '", share.ns->name(),
                            "' cannot be moved to a file: ", why...)
      .Because("NOT_MOVABLE");
}

}  // namespace

// Its file is charged instead. The charge of no bytes has an account of its own, because the user's counts arenas.
std::unique_ptr<Arena> MakeDiskArena(ArenaId id, uint64_t generation, Namespace& ns, uint64_t size) {
  auto charge = ns.ChargeAgain(0, std::make_shared<Quota>(0));
  auto arena = std::make_unique<Arena>(id, generation, &ns, nullptr, std::move(charge),
                                       std::make_shared<DiskBlock>(size), Device{}, HandleKind{});
  arena->immutability = Immutability::kEnforced;
  return arena;
}

Status CheckMovable(const Share& share) {
  if (share.rank.pin == Pin::kHard) {
    return FailedPrecondition("share '", share.facts->name, "' of namespace '", share.ns->name(),
                              "' stays in memory: it has a hard pin: pin it otherwise first")
        .Because("PINNED");
  }
  if (share.facts->unnamed) return NotMovable(share, "its maker chose no name for it: put it with a name");
  if (share.arena->kind() != HandleKind::kMemfd) return NotMovable(share, "it is in the memory of a GPU");
  if (IsForward(share)) return NotMovable(share, "it uses the bytes of another share: copy the array and put the copy");
  if (share.forwards > 0) return InUse(share, share.forwards, " other shares use its bytes: withdraw them first");
  if (!share.fence.done()) return InUse(share, "its bytes are still being made: try again when they are complete");
  if (share.leases == 0) return Ok();
  return InUse(share, "processes have ", share.leases,
               " leases on it (arraybridgectl show names them): they must drop it");
}

Status IsAway(const Share& share) {
  const std::string& name = share.facts->name;
  if (!FileOf(share.stored).empty()) {
    return NotFound("share '", name, "' of namespace '", share.ns->name(), "' is in a file, and its ", share.size,
                    " bytes are being read: wait longer")
        .Because("SHARE_AWAY")
        .With("share", name);
  }
  return MakeStatus(Code::kDataLoss, "the bytes of share '", name, "' of namespace '", share.ns->name(),
                    "' are lost: its file was damaged (arraybridgectl tier ls names what was set aside): put it again")
      .Because("SHARE_LOST");
}

// The order is the one in which a daemon that is killed between two steps leaves one of the two places valid: a
// returned range counts only if no share has it, and the share's record names the place.
void Shares::Move(Share& share, Arena& to) {
  Arena& from = *share.arena;
  share.ns->hazards.Free(share);
  share.retired = false;
  ReturnRange(share);
  static_cast<void>(Failpoint("tier_range_returned"));
  share.arena = &to;
  share.offset = 0;
  to.Carve(0, &share);
  journal_.Put(share);
  static_cast<void>(Failpoint("tier_share_recorded"));
  arenas_.RetireIfIdle(from);
}

}  // namespace arraybridge::daemon

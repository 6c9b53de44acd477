// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/forwards.h"

#include <utility>

#include "daemon/broker/objects/kept_ranges.h"
#include "daemon/broker/objects/namespace.h"
#include "proto/boundary/byte_range.h"

namespace arraybridge::daemon {
namespace {

bool IsInside(const Share& share, const PublishCall& call) {
  return ByteRange{share.offset, share.size}.Contains({call.offset, call.size});
}

}  // namespace

Status NotForwarded(std::string_view why) {
  return FailedPrecondition("these bytes cannot be published once more, because ", why, ": publish a copy of them")
      .Because("NOT_FORWARDED");
}

// Any session with a right to the namespace may acquire a share that has a name. For another share the session needs a
// lease or a hazard slot.
Result<Share*> Forwards::FindHeld(const Session& session, const ShareSource& source, const Namespace& ns) const {
  if (source.lease != LeaseId{}) {
    const auto leased = session.leases.find(source.lease);
    return leased == session.leases.end() ? Result<Share*>(NotForwarded("this session has no such lease"))
                                          : leased->second;
  }
  const auto found = ns.shares().find(source.share);
  if (found == ns.shares().end()) return NotForwarded("their share is gone");
  Share* const share = found->second.get();
  if (!share->withdrawn || ns.hazards.IsHeldBy(session, *share)) return share;
  return NotForwarded("this session does not hold their share");
}

// The broker does not know which entries a receiver has taken and not returned; the receiver says which range has the
// bit. If it says wrong, it pins a range, as it could by not returning it, and publishes bytes that may change.
Result<Forwards::Origin> Forwards::FindReceived(const Session& session, const PublishCall& call,
                                                const Arena& arena) const {
  const auto direct = direct_channels_.FindReceived(session.id, call.source->direct_channel);
  if (direct == nullptr) return NotForwarded("their direct channel is gone");
  if (call.source->bit >= direct_channel::kReturnBits) return NotForwarded("no range has such a return bit");
  if (arena.writer == nullptr || arena.writer->id != direct->sender) return NotForwarded("their sender is gone");
  AB_RETURN_IF_ERROR(arena.CheckInside(call.offset, call.size));
  // One look: the forwards of an entry may be many. Mostly all are of the whole entry.
  Share* const root = direct->kept->RootOf(call.source->bit);
  const bool same = root != nullptr && root->arena == &arena && IsInside(*root, call);
  if (same) return Origin{root, nullptr};
  return Origin{nullptr, direct->kept};
}

Result<Forwards::Origin> Forwards::Find(const Session& session, const PublishCall& call, const Arena& arena) const {
  // A GPU has no read-only mappings: every reader may have written.
  if (arena.kind() != HandleKind::kMemfd) return NotForwarded("they are not in host memory");
  if (!arena.immutability.has_value()) return NotForwarded("their arena is not sealed");
  if (call.sealed && arena.immutability != Immutability::kEnforced) return NotForwarded("their arena is not sealed");
  if (call.source->direct_channel != 0) return FindReceived(session, call, arena);
  AB_ASSIGN_OR_RETURN(const auto held, FindHeld(session, *call.source, *arena.ns()));
  Share& share = *held;
  if (share.arena != &arena || call.size == 0 || !IsInside(share, call) || call.offset % kArrayAlignment != 0) {
    return NotForwarded("they do not lie in the share");
  }
  if (!share.fence.done()) return NotForwarded("they are still being made");
  return Origin{share.root == nullptr ? &share : share.root, nullptr};
}

void Forwards::Add(Session& maker, Share& share, Origin origin, const ShareSource& source) {
  ++total;
  share.forwarded_by = &maker;
  maker.forwarded.emplace(share.facts->id, &share);
  share.arena->AddForward(&share);
  if (origin.root != nullptr) {
    share.root = origin.root;
    ++origin.root->forwards;
    // It waits no longer for hazard slots; it does again after its last forward.
    if (origin.root->withdrawn) hazards_.Unwait(*origin.root);
    return;
  }
  share.kept_bit = source.bit;
  share.kept_in = std::move(origin.ranges);
  share.kept_in->AddRoot(source.bit, &share);
}

void Forwards::RestoreMaker(Session* maker, Share& share) {
  share.arena->AddForward(&share);
  if (maker == nullptr) return;
  share.forwarded_by = maker;
  maker->forwarded.emplace(share.facts->id, &share);
}

void Forwards::Restore(Session* maker, Share& share, Share& root) {
  RestoreMaker(maker, share);
  share.root = &root;
  ++root.forwards;
}

void Forwards::RestoreKept(Session* maker, Share& share, std::shared_ptr<KeptRanges> ranges, uint64_t bit) {
  RestoreMaker(maker, share);
  share.kept_bit = bit;
  share.kept_in = std::move(ranges);
  share.kept_in->RestoreRoot(bit, &share);
}

Share* Forwards::Remove(Share& share) {
  // The session may have ended and be cleared in slices.
  if (share.forwarded_by != nullptr) share.forwarded_by->forwarded.erase(share.facts->id);
  share.arena->DropForward(&share);
  if (share.root != nullptr) {
    --share.root->forwards;
    return share.root;
  }
  share.kept_in->RemoveRoot(share.kept_bit, &share);
  share.kept_in = nullptr;
  return nullptr;
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/arena.h"

#include <iterator>

#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {

Arena::Arena(ArenaId id, uint64_t generation, Namespace* ns, Session* made_by, Charge charge,
             std::shared_ptr<MemoryBlock> block, Device device, HandleKind kind)
    : writer(made_by),
      maker(made_by),
      id_(id),
      generation_(generation),
      ns_(ns),
      device_(std::move(device)),
      kind_(kind),
      size_(block->size()),
      charge_(std::move(charge)),
      block_(std::move(block)) {}

Handle Arena::Describe(uint64_t offset, uint64_t size) const {
  Handle handle;
  handle.kind = kind_;
  handle.arena = Number(id_);
  handle.generation = generation_;
  handle.offset = offset;
  handle.size = size;
  handle.arena_size = size_;
  handle.device = device_;
  return handle;
}

Status Arena::CheckInside(uint64_t offset, uint64_t size) const {
  if (size == 0) return InvalidArgument("a share of 0 bytes");
  if (offset % kArrayAlignment != 0) {
    return InvalidArgument("offset ", offset, " is not a multiple of ", kArrayAlignment).Because("UNALIGNED");
  }
  if (offset > size_ || size > size_ - offset) {
    return InvalidArgument("offset ", offset, ", size ", size, " is outside arena ", Number(id_), " (", size_,
                           " bytes)")
        .Because("OUT_OF_BOUNDS");
  }
  return Ok();
}

Status Arena::CheckRange(uint64_t offset, uint64_t size) const {
  AB_RETURN_IF_ERROR(CheckInside(offset, size));
  if (shares_.empty() || shares_.rbegin()->first + shares_.rbegin()->second->size <= offset) return Ok();
  const auto after = shares_.lower_bound(offset);
  const bool hits_next = after != shares_.end() && after->first - offset < size;
  const auto before = after == shares_.begin() ? shares_.end() : std::prev(after);
  const bool hits_previous = before != shares_.end() && offset - before->first < before->second->size;
  if (!hits_next && !hits_previous) return Ok();
  return FailedPrecondition("offset ", offset, ", size ", size, " of arena ", Number(id_),
                            " overlaps a share that is still in use")
      .Because("OVERLAP");
}

}  // namespace arraybridge::daemon

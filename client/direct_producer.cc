#include "client/direct_producer.h"

#include <algorithm>
#include <bit>

#include "client/placement_range.h"

namespace arraybridge {
namespace {

constexpr uint64_t BitOf(uint32_t slot) { return uint64_t{1} << slot % 64; }

}  // namespace

// What the receiver is to get by calls waits in the channel too. Both count it, neither is believed beyond what fits.
bool DirectProducer::IsFull(uint64_t tail) const {
  const uint64_t standing = Load(page_.head, std::memory_order_relaxed) - tail;
  const uint64_t calls = Load(pages_->control().calls, std::memory_order_acquire);
  const uint64_t received = Load(other_.calls, std::memory_order_acquire);
  const uint64_t by_calls = calls > received ? std::min(calls - received, capacity()) : 0;
  return standing <= capacity() && standing + by_calls >= capacity();
}

uint32_t DirectProducer::FreeSlot() const {
  for (uint32_t word = 0; word < direct_channel::kDoneWords; ++word) {
    if (const int bit = std::countr_one(used_[word]); bit < 64) return word * 64 + static_cast<uint32_t>(bit);
  }
  return kNone;
}

void DirectProducer::Occupy(uint32_t slot, const Placement::Range& range) {
  Slot& its = slots_[slot];
  its.arena = range.arena->id;
  its.offset = range.offset;
  its.index = head_;
  its.left.store(false, std::memory_order_relaxed);
  used_[slot / 64] |= BitOf(slot);
  outstanding_[slot / 64] |= BitOf(slot);
  // Whatever it is now, the other one says that this range is done.
  const uint64_t now = Load(other_.done[slot / 64], std::memory_order_relaxed) & BitOf(slot);
  parity_[slot / 64] = (parity_[slot / 64] & ~BitOf(slot)) | now;
  outstanding_count_.fetch_add(1, std::memory_order_relaxed);
}

void DirectProducer::Vacate(uint32_t slot) { used_[slot / 64] &= ~BitOf(slot); }

void DirectProducer::Done(uint32_t slot, bool return_it) {
  Slot& its = slots_[slot];
  outstanding_[slot / 64] &= ~BitOf(slot);
  outstanding_count_.fetch_sub(1, std::memory_order_relaxed);
  if (return_it) written_.DropForBroker(its.arena, its.offset);
  if (!its.left.load(std::memory_order_acquire)) return lingering_.push_back(slot);
  written_.DropLocal(its.arena, its.offset);
  Vacate(slot);
}

bool DirectProducer::Believe(uint64_t tail) {
  if (tail <= seen_) return true;
  if (direct_channel::Pass(page_.seen, tail, pages_->control()) != direct_channel::kStands) return false;
  seen_ = tail;
  return true;
}

DirectProducer::Outcome DirectProducer::Put(const std::shared_ptr<Placement::Range>& range, std::string_view description) {
  const MutexLock lock(mutex_);
  if (!pages_->stands()) return Outcome::kEnded;
  const uint64_t tail = Tail();
  if (!direct_channel::CanBe(head_, tail, capacity())) return Outcome::kByCall;
  if (IsFull(tail)) return Outcome::kFull;
  // The place was another entry's. One fence for as many as fit.
  if (head_ - seen_ >= capacity() && !Believe(tail)) return Outcome::kEnded;
  const uint32_t slot = FreeSlot();
  if (slot == kNone) return Outcome::kByCall;
  Occupy(slot, *range);
  written_.HoldForBroker(*range->arena, range->offset);
  range->left_direct.store(&slots_[slot].left, std::memory_order_release);
  const direct_channel::Message said{range->arena->id, range->arena->generation, range->offset, range->size, slot, 0, {}};
  direct_channel::Write(direct_channel::EntriesOf(page_)[head_ % capacity()], said, description);
  const uint64_t revoked = direct_channel::Pass(page_.head, ++head_, pages_->control());
  if (revoked == direct_channel::kStands) {
    pages_->RingIfAsleep(other_.asleep, rung_);
    return Outcome::kSent;
  }
  // If nobody can tell any more, the range goes with the connection.
  if (!pages_->AwaitEnd(lifeline_)) return Outcome::kEnded;
  if (Load(pages_->control().counted, std::memory_order_relaxed) >= head_) return Outcome::kSent;
  range->left_direct.store(nullptr, std::memory_order_release);
  outstanding_[slot / 64] &= ~BitOf(slot);
  outstanding_count_.fetch_sub(1, std::memory_order_relaxed);
  written_.DropForBroker(range->arena->id, range->offset);
  Vacate(slot);
  return Outcome::kEnded;
}

// What the broker took off the direct channel is a share like any other: it says itself when that may be carved again.
void DirectProducer::Settle() {
  if (settled_ || Load(pages_->control().revoked, std::memory_order_acquire) != direct_channel::kEnded) return;
  settled_ = true;
  const uint64_t taken = Load(pages_->control().taken, std::memory_order_relaxed);
  for (uint32_t slot = 0; slot < direct_channel::kSlots; ++slot) {
    const bool its = (outstanding_[slot / 64] & BitOf(slot)) != 0;
    if (its && slots_[slot].index >= taken) Done(slot, false);
  }
}

bool DirectProducer::Look() {
  const MutexLock lock(mutex_);
  Settle();
  const bool gone = settled_ && Load(pages_->control().gone, std::memory_order_acquire) != 0;
  if (!settled_) static_cast<void>(Believe(std::min(Tail(), head_)));
  const uint64_t tail = settled_ ? head_ : seen_;
  for (uint32_t word = 0; word < direct_channel::kDoneWords; ++word) {
    if (outstanding_[word] == 0) continue;
    const uint64_t flipped = Load(other_.done[word], std::memory_order_acquire) ^ parity_[word];
    for (uint64_t done = outstanding_[word] & (gone ? ~uint64_t{0} : flipped); done != 0; done &= done - 1) {
      const uint32_t slot = word * 64 + static_cast<uint32_t>(std::countr_zero(done));
      if (slots_[slot].index < tail) Done(slot, true);
    }
  }
  size_t kept = 0;
  for (const uint32_t slot : lingering_) {
    if (!slots_[slot].left.load(std::memory_order_acquire)) {
      lingering_[kept++] = slot;
      continue;
    }
    written_.DropLocal(slots_[slot].arena, slots_[slot].offset);
    Vacate(slot);
  }
  lingering_.resize(kept);
  return settled_ && lingering_.empty() && outstanding() == 0;
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "client/direct_channels/direct_producer.h"

#include <bit>

#include "client/arenas/placement_range.h"
#include "proto/boundary/boot_time.h"

namespace arraybridge {
namespace {

constexpr uint64_t MaskOf(uint64_t bit) { return uint64_t{1} << bit % 64; }

direct_channel::Header HeaderOf(const WrittenArena& arena, uint64_t offset, uint64_t size) {
  return {.arena = arena.id, .generation = arena.generation, .offset = offset, .size = size};
}

}  // namespace

uint32_t DirectProducer::FreeBit() const {
  for (uint32_t word = 0; word < direct_channel::kReturnWords; ++word) {
    if (const int bit = std::countr_one(used_[word]); bit < 64) return word * 64 + static_cast<uint32_t>(bit);
  }
  return kNone;
}

void DirectProducer::Occupy(const direct_channel::Header& header, bool has_views) {
  const uint64_t bit = header.bit;
  Sent& its = sent_[bit];
  its.arena = header.arena;
  its.offset = header.offset;
  its.index = writer_.filled();
  its.has_views = has_views;
  its.left.store(!has_views, std::memory_order_relaxed);
  used_[bit / 64] |= MaskOf(bit);
  outstanding_[bit / 64] |= MaskOf(bit);
  // The opposite of the bit's present value will say that this range came back.
  const uint64_t now = Load(other_.returned[bit / 64], std::memory_order_relaxed) & MaskOf(bit);
  parity_[bit / 64] = (parity_[bit / 64] & ~MaskOf(bit)) | now;
  outstanding_count_.fetch_add(1, std::memory_order_relaxed);
}

void DirectProducer::Vacate(uint32_t bit) { used_[bit / 64] &= ~MaskOf(bit); }

void DirectProducer::Done(uint32_t bit, bool return_it) {
  Sent& its = sent_[bit];
  outstanding_[bit / 64] &= ~MaskOf(bit);
  outstanding_count_.fetch_sub(1, std::memory_order_relaxed);
  if (!its.left.load(std::memory_order_acquire)) {
    if (return_it) written_.ReleaseForBroker(its.arena, its.offset);
    return lingering_.push_back(bit);
  }
  // A range that the broker returns itself, and that this process did not hold, may be carved again by now.
  if (return_it) written_.ReleaseBoth(its.arena, its.offset);
  if (!return_it && its.has_views) written_.ReleaseLocal(its.arena, its.offset);
  Vacate(bit);
}

bool DirectProducer::See(uint64_t taken) {
  if (taken <= seen_) return true;
  if (!direct_channel::StoreSeen(page_, taken, pages_->control())) return false;
  seen_ = taken;
  return true;
}

DirectProducer::Outcome DirectProducer::Put(Placement::Range& range, std::string_view description) {
  const MutexLock lock(mutex_);
  return Put(HeaderOf(*range.arena, range.offset, range.size), description, &range);
}

DirectProducer::Outcome DirectProducer::Put(const WrittenArenas::Carving& carving, uint64_t size,
                                            std::string_view description) {
  const MutexLock lock(mutex_);
  return Put(HeaderOf(*carving.arena, carving.offset, size), description, nullptr);
}

DirectProducer::Outcome DirectProducer::Put(direct_channel::Header header, std::string_view description,
                                            Placement::Range* range) {
  if (!pages_->stands()) return Outcome::kEnded;
  uint64_t queued_calls = QueuedCalls(received_);
  if (queued_calls > 0) queued_calls = QueuedCalls(received_ = Received());
  if (!writer_.HasRoom(1 + queued_calls)) return writer_.broken() ? Outcome::kByCall : Outcome::kFull;
  // The slot was another entry's. One fence covers as many slots as fit.
  if (writer_.filled() - seen_ >= capacity() && !See(writer_.taken())) return Outcome::kEnded;
  const uint32_t bit = FreeBit();
  if (bit == kNone) return Outcome::kByCall;
  header.bit = bit;
  Occupy(header, range != nullptr);
  if (range != nullptr) {
    written_.HoldForBroker(*range->arena, range->offset);
    range->left_direct.store(&sent_[bit].left, std::memory_order_release);
  }
  direct_channel::Entry entry;
  header.time_ns = BootTime();
  writer_.Write({entry.data(), direct_channel::Encode(header, description, entry)});
  if (pages_->Pass()) return Outcome::kSent;
  if (!pages_->AwaitRevoked(lifeline_)) return Outcome::kLost;
  if (Load(pages_->control().counted, std::memory_order_relaxed) >= writer_.filled()) return Outcome::kSent;
  if (range != nullptr) {
    range->left_direct.store(nullptr, std::memory_order_release);
    written_.ReleaseForBroker(header.arena, header.offset);
  }
  outstanding_[bit / 64] &= ~MaskOf(bit);
  outstanding_count_.fetch_sub(1, std::memory_order_relaxed);
  Vacate(bit);
  return Outcome::kEnded;
}

// The broker publishes the entries that it took out of the direct channel: it says itself when their ranges are free.
void DirectProducer::Settle() {
  if (settled_ || Load(pages_->control().revoked, std::memory_order_acquire) != direct_channel::kRevoked) return;
  settled_ = true;
  const uint64_t taken = Load(pages_->control().taken, std::memory_order_relaxed);
  for (uint32_t bit = 0; bit < direct_channel::kReturnBits; ++bit) {
    const bool outstanding = (outstanding_[bit / 64] & MaskOf(bit)) != 0;
    if (outstanding && sent_[bit].index >= taken) Done(bit, false);
  }
}

bool DirectProducer::Poll() {
  const MutexLock lock(mutex_);
  Settle();
  const bool gone = settled_ && Load(pages_->control().gone, std::memory_order_acquire) != 0;
  const uint64_t filled = writer_.filled();
  if (!settled_) static_cast<void>(See(std::min(Load(other_.progress.taken, std::memory_order_acquire), filled)));
  const uint64_t taken = settled_ ? filled : seen_;
  for (uint32_t word = 0; word < direct_channel::kReturnWords; ++word) {
    if (outstanding_[word] == 0) continue;
    const uint64_t flipped = Load(other_.returned[word], std::memory_order_acquire) ^ parity_[word];
    const uint64_t returned = outstanding_[word] & (gone ? ~uint64_t{0} : flipped);
    if (returned == 0) continue;
    for (uint64_t done = direct_channel::NotKept(pages_->control(), word, returned); done != 0; done &= done - 1) {
      const uint32_t bit = word * 64 + static_cast<uint32_t>(std::countr_zero(done));
      if (sent_[bit].index < taken) Done(bit, true);
    }
  }
  size_t kept = 0;
  for (const uint32_t bit : lingering_) {
    if (!sent_[bit].left.load(std::memory_order_acquire)) {
      lingering_[kept++] = bit;
      continue;
    }
    written_.ReleaseLocal(sent_[bit].arena, sent_[bit].offset);
    Vacate(bit);
  }
  lingering_.resize(kept);
  return settled_ && lingering_.empty() && outstanding() == 0;
}

}  // namespace arraybridge

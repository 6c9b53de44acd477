// SPDX-License-Identifier: Apache-2.0
#include "client/direct_channels/direct_consumer.h"

#include "proto/boundary/byte_range.h"

namespace arraybridge {

void DirectConsumer::NoteCalls(uint64_t received) {
  const MutexLock lock(mutex_);
  Store(page_.calls, received, std::memory_order_release);
  static_cast<void>(pages_->Pass());
}

// The entry is copied before `calls` is loaded: so a share that its producer sent by a call before it is counted.
DirectConsumer::Outcome DirectConsumer::Take(Lifeline& lifeline, uint64_t received, const MapsArena& maps,
                                             direct_channel::Entry* entry, uint64_t* sequence) {
  const MutexLock lock(mutex_);
  if (!pages_->stands()) return Outcome::kEnded;
  const bool copied = reader_.Copy(*entry) != 0;
  if (received < calls()) return Outcome::kByCalls;
  if (!copied) return reader_.broken() ? Outcome::kMalformed : Outcome::kEmpty;
  const direct_channel::Header header = direct_channel::HeaderOf(*entry);
  const bool is_free =
      header.bit < direct_channel::kReturnBits && held_[header.bit].users.load(std::memory_order_acquire) == 0;
  if (!is_free) return Outcome::kMalformed;
  if (!MayLieIn(header.arena, header.generation) || !maps(header)) return Outcome::kLacksArena;
  reader_.Take();
  *sequence = pages_->control().sequence + reader_.taken() + received;
  if (!pages_->Pass()) {
    if (!pages_->AwaitRevoked(lifeline)) return Outcome::kEnded;
    // If the broker has published the entry, the share comes by a call.
    if (Load(pages_->control().taken, std::memory_order_relaxed) < reader_.taken()) return Outcome::kEnded;
  }
  NoteHeld(header);  // from now on other threads find it
  return Outcome::kTaken;
}

bool DirectConsumer::MayLieIn(uint64_t arena, uint64_t generation) const {
  return std::ranges::find(arenas_, std::pair(arena, generation)) != arenas_.end();
}

void DirectConsumer::NoteArena(uint64_t arena, uint64_t generation) {
  constexpr size_t kArenasMost = 64;  // beyond this number the broker is asked about all anew
  const MutexLock lock(mutex_);
  if (MayLieIn(arena, generation)) return;
  if (arenas_.size() >= kArenasMost) arenas_.clear();
  arenas_.emplace_back(arena, generation);
}

void DirectConsumer::NoteHeld(const direct_channel::Header& header) {
  Range& range = held_[header.bit];
  range.arena.store(header.arena, std::memory_order_relaxed);
  range.offset.store(header.offset, std::memory_order_relaxed);
  range.size.store(header.size, std::memory_order_relaxed);
  range.users.store(kArrays, std::memory_order_release);
  if (header.bit >= bits_.load(std::memory_order_relaxed)) bits_.store(header.bit + 1, std::memory_order_relaxed);
}

// Other threads change the records of entries meanwhile. A record is believed once this caller is a forward of its
// entry: the record does not change as long as the entry has one.
std::optional<DirectConsumer::Held> DirectConsumer::FindAndHold(uint64_t arena, uint64_t offset, uint64_t bytes) {
  const auto lies_in = [&](const Held& held) {
    if (held.size == 0 || held_[held.bit].arena.load(std::memory_order_relaxed) != arena) return false;
    return ByteRange{held.offset, held.size}.Contains({offset, bytes});
  };
  const auto read = [&](uint64_t bit) {
    return Held{bit, held_[bit].offset.load(std::memory_order_relaxed),
                held_[bit].size.load(std::memory_order_relaxed)};
  };
  const uint64_t bits = bits_.load(std::memory_order_relaxed);
  for (uint64_t bit = 0; bit < bits; ++bit) {
    if (!lies_in(read(bit))) continue;
    std::atomic<uint32_t>& users = held_[bit].users;
    uint32_t now = users.load(std::memory_order_relaxed);
    const auto has_arrays = [&] { return (now & kArrays) != 0; };
    while (has_arrays() && !users.compare_exchange_weak(now, now + kForward, std::memory_order_acquire)) continue;
    if (!has_arrays()) continue;
    const Held held = read(bit);
    if (lies_in(held)) return held;
    ReleaseForward(bit);
  }
  return std::nullopt;
}

std::shared_ptr<const KnownShare> DirectConsumer::Known(std::string_view description, uint64_t size) const {
  const MutexLock lock(mutex_);
  return known_ && known_->share.size == size && known_->description == description ? known_ : nullptr;
}

void DirectConsumer::Remember(std::shared_ptr<const KnownShare> known) {
  const MutexLock lock(mutex_);
  known_ = std::move(known);
}

}  // namespace arraybridge

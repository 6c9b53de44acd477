#include "client/direct_channels/direct_consumer.h"

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
  if (header.bit >= direct_channel::kReturnBits) return Outcome::kMalformed;
  if (!maps(header)) return Outcome::kLacksArena;
  reader_.Take();
  *sequence = pages_->control().sequence + reader_.taken() + received;
  NoteHeld(header);
  if (pages_->Pass()) return Outcome::kTaken;
  if (!pages_->AwaitRevoked(lifeline)) return Outcome::kEnded;
  // If the broker has published the entry, the share comes by a call.
  const bool counts = Load(pages_->control().taken, std::memory_order_relaxed) >= reader_.taken();
  if (!counts) held_[header.bit].size.store(0, std::memory_order_relaxed);
  return counts ? Outcome::kTaken : Outcome::kEnded;
}

void DirectConsumer::NoteHeld(const direct_channel::Header& header) {
  Range& range = held_[header.bit];
  range.arena.store(header.arena, std::memory_order_relaxed);
  range.offset.store(header.offset, std::memory_order_relaxed);
  range.size.store(header.size, std::memory_order_relaxed);
  if (header.bit >= bits_.load(std::memory_order_relaxed)) bits_.store(header.bit + 1, std::memory_order_relaxed);
}

// Other threads change the records of entries that the caller does not use. A record that is read while it changes
// names no entry with these bytes, or one that the broker refuses.
std::optional<DirectConsumer::Held> DirectConsumer::Find(uint64_t arena, uint64_t offset, uint64_t bytes) const {
  const uint64_t bits = bits_.load(std::memory_order_relaxed);
  for (uint64_t bit = 0; bit < bits; ++bit) {
    const Held held{bit, held_[bit].offset.load(std::memory_order_relaxed),
                    held_[bit].size.load(std::memory_order_relaxed)};
    if (held.size == 0 || held_[bit].arena.load(std::memory_order_relaxed) != arena || offset < held.offset) continue;
    const uint64_t inside = offset - held.offset;
    if (inside <= held.size && bytes <= held.size - inside) return held;
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

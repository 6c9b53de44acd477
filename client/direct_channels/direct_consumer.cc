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
  if (pages_->Pass()) return Outcome::kTaken;
  if (!pages_->AwaitRevoked(lifeline)) return Outcome::kEnded;
  // If the broker has published the entry, the share comes by a call.
  const bool counts = Load(pages_->control().taken, std::memory_order_relaxed) >= reader_.taken();
  return counts ? Outcome::kTaken : Outcome::kEnded;
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

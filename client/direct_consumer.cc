#include "client/direct_consumer.h"

#include <optional>

namespace arraybridge {

void DirectConsumer::NoteCalls(uint64_t received) {
  const MutexLock lock(mutex_);
  Store(page_.calls, received, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  pages_->RingIfAsleep(other_.asleep, rung_);
}

bool DirectConsumer::MayTake(uint64_t received) const {
  const uint64_t head = Load(other_.head, std::memory_order_acquire);
  return head != Load(page_.tail, std::memory_order_relaxed) || calls() > received || !pages_->stands();
}

// The head first: what its sender sent by calls before it is counted then.
DirectConsumer::Outcome DirectConsumer::Take(Lifeline& lifeline, uint64_t received,
                                   const std::function<bool(const direct_channel::Message&)>& has, direct_channel::Message* entry) {
  const MutexLock lock(mutex_);
  if (!pages_->stands()) return Outcome::kEnded;
  const uint64_t head = Load(other_.head, std::memory_order_acquire);
  if (received < calls()) return Outcome::kByCalls;
  if (head == tail_) return Outcome::kEmpty;
  if (!direct_channel::CanBe(head, tail_, pages_->capacity())) return Outcome::kNonsense;
  const std::optional<direct_channel::Message> said = direct_channel::Read(direct_channel::EntriesOf(other_)[tail_ % pages_->capacity()]);
  if (!said) return Outcome::kNonsense;
  *entry = *said;
  if (!has(*entry)) return Outcome::kLacksArena;
  const uint64_t revoked = direct_channel::Pass(page_.tail, ++tail_, pages_->control());
  if (revoked != direct_channel::kStands) {
    const bool known = pages_->AwaitEnd(lifeline);
    // The broker saw it standing: it comes by a call.
    if (!known || Load(pages_->control().taken, std::memory_order_relaxed) < tail_) return Outcome::kEnded;
  }
  pages_->RingIfAsleep(other_.asleep, rung_);
  return Outcome::kTaken;
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

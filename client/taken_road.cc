#include "client/taken_road.h"

#include <optional>

namespace arraybridge {

void TakenRoad::NoteCalls(uint64_t received) {
  const MutexLock lock(mutex_);
  Store(page_.calls, received, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  pages_->RingIfAsleep(other_.asleep, rung_);
}

bool TakenRoad::MayTake(uint64_t received) const {
  const uint64_t head = Load(other_.head, std::memory_order_acquire);
  return head != Load(page_.tail, std::memory_order_relaxed) || calls() > received || !pages_->stands();
}

// The head first: what its sender sent by calls before it is counted then.
TakenRoad::Outcome TakenRoad::Take(Lifeline& lifeline, uint64_t received,
                                   const std::function<bool(const road::Message&)>& has, road::Message* entry) {
  const MutexLock lock(mutex_);
  if (!pages_->stands()) return Outcome::kEnded;
  const uint64_t head = Load(other_.head, std::memory_order_acquire);
  if (received < calls()) return Outcome::kByCalls;
  if (head == tail_) return Outcome::kEmpty;
  if (!road::CanBe(head, tail_, pages_->capacity())) return Outcome::kNonsense;
  const std::optional<road::Message> said = road::Read(road::EntriesOf(other_)[tail_ % pages_->capacity()]);
  if (!said) return Outcome::kNonsense;
  *entry = *said;
  if (!has(*entry)) return Outcome::kLacksArena;
  const uint64_t revoked = road::Pass(page_.tail, ++tail_, pages_->sign());
  if (revoked != road::kStands) {
    const bool known = pages_->AwaitEnd(lifeline);
    // The broker saw it standing: it comes by a call.
    if (!known || Load(pages_->sign().taken, std::memory_order_relaxed) < tail_) return Outcome::kEnded;
  }
  pages_->RingIfAsleep(other_.asleep, rung_);
  return Outcome::kTaken;
}

std::shared_ptr<const KnownShare> TakenRoad::Known(std::string_view description, uint64_t size) const {
  const MutexLock lock(mutex_);
  return known_ && known_->share.size == size && known_->description == description ? known_ : nullptr;
}

void TakenRoad::Remember(std::shared_ptr<const KnownShare> known) {
  const MutexLock lock(mutex_);
  known_ = std::move(known);
}

}  // namespace arraybridge

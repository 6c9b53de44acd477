// A DirectProducer is the sending end of a direct channel: entries go in, and the ranges that they name come back when the receiver has
// read them. A range has two holders, as in WrittenArenas: the views of this process, and the receiver, in the broker's
// place.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <arraybridge/array.h>

#include "client/direct_pages.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

class WrittenArenas;

// Thread-safe. REQUIRES: the Lifeline and the arenas outlive it.
class DirectProducer {
 public:
  DirectProducer(std::unique_ptr<DirectPages> pages, Lifeline& lifeline, WrittenArenas& written)
      : pages_(std::move(pages)),
        lifeline_(lifeline),
        written_(written),
        page_(*static_cast<direct_channel::ProducerPage*>(pages_->own())),
        other_(*static_cast<const direct_channel::ConsumerPage*>(pages_->other())) {}
  DirectProducer(const DirectProducer&) = delete;
  DirectProducer& operator=(const DirectProducer&) = delete;

  // The broker's name for it.
  uint64_t number() const { return pages_->control().number; }
  bool opened() const { return pages_->opened(); }
  uint64_t capacity() const { return pages_->capacity(); }

  // kByCall: the receiver has so much already that no slot is left, or it counts as nobody can. kEnded: as kByCall, and
  // from now on.
  enum class Outcome : uint8_t { kSent, kFull, kByCall, kEnded };
  // The range stays as it is until the receiver has read it. REQUIRES: host memory that the broker knows to be mapped;
  // a description of at most direct_channel::kDescriptionBytesMax bytes.
  Outcome Put(const std::shared_ptr<Placement::Range>& range, std::string_view description) AB_EXCLUDES(mutex_);
  // Until there may be room.
  Status AwaitRoom(const DirectWait& how) {
    return pages_->Wait(
        page_.asleep, [this] { return !IsFull(Tail()) || !pages_->stands(); }, how);
  }

  // Carves anew what the receiver reads no more. True: it has ended, and nothing of it is left.
  bool Look() AB_EXCLUDES(mutex_);
  // Ranges that the receiver has, or is to have.
  uint64_t outstanding() const { return outstanding_count_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    uint64_t arena = 0;
    uint64_t offset = 0;
    uint64_t index = 0;             // of its entry
    std::atomic<bool> left{false};  // the views of this process have gone
  };
  static constexpr uint32_t kNone = direct_channel::kSlots;
  using Bits = std::array<uint64_t, direct_channel::kDoneWords>;

  // `tail`: entries that were taken, as the receiver says.
  bool IsFull(uint64_t tail) const;
  uint64_t Tail() const { return Load(other_.tail, std::memory_order_acquire); }
  uint32_t FreeSlot() const AB_REQUIRES(mutex_);
  void Occupy(uint32_t slot, const Placement::Range& range) AB_REQUIRES(mutex_);
  void Vacate(uint32_t slot) AB_REQUIRES(mutex_);
  // So many were taken, the receiver says. From now on it cannot take that back: their places and ranges may be
  // others'. False: the direct channel ends, and only the control block says what was.
  bool Believe(uint64_t tail) AB_REQUIRES(mutex_);
  // The receiver, or the broker, has no part in it any more.
  void Done(uint32_t slot, bool return_it) AB_REQUIRES(mutex_);
  void Settle() AB_REQUIRES(mutex_);

  const std::unique_ptr<DirectPages> pages_;
  Lifeline& lifeline_;
  WrittenArenas& written_;
  direct_channel::ProducerPage& page_;
  const direct_channel::ConsumerPage& other_;
  std::atomic<uint64_t> outstanding_count_{0};
  Mutex mutex_;
  uint64_t head_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t seen_ AB_GUARDED_BY(mutex_) = 0;  // of these: taken, and the broker can see that
  uint64_t rung_ AB_GUARDED_BY(mutex_) = 0;
  bool settled_ AB_GUARDED_BY(mutex_) = false;  // it has ended, and what counted is known
  std::array<Slot, direct_channel::kSlots> slots_;        // `left` is anybody's, the rest is who has the lock's
  Bits used_ AB_GUARDED_BY(mutex_){};
  Bits outstanding_ AB_GUARDED_BY(mutex_){};               // of these: the receiver has a part in them
  Bits parity_ AB_GUARDED_BY(mutex_){};                    // of the receiver's bits, when the slot was taken
  std::vector<uint32_t> lingering_ AB_GUARDED_BY(mutex_);  // the receiver has none, the views of this process do
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A DirectProducer is the producing end of a direct channel: entries go in, and the ranges that they name come back
// when the consumer has read them. A range has two holders, as in WrittenArenas: the views of this process, and the
// consumer, in the broker's place.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <arraybridge/array.h>

#include "client/arenas/arena.h"
#include "client/direct_channels/direct_pages.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe. REQUIRES: the Lifeline and the arenas outlive it.
class DirectProducer {
 public:
  DirectProducer(std::unique_ptr<DirectPages> pages, Lifeline& lifeline, WrittenArenas& written)
      : pages_(std::move(pages)),
        lifeline_(lifeline),
        written_(written),
        page_(*static_cast<direct_channel::ProducerPage*>(pages_->own())),
        other_(*static_cast<const direct_channel::ConsumerPage*>(pages_->other())),
        writer_(page_.progress, direct_channel::SlotsOf(page_, pages_->capacity()), other_.progress) {}

  // The broker's name for it.
  uint64_t number() const { return pages_->control().number; }
  bool opened() const { return pages_->opened(); }
  bool stands() const { return pages_->stands(); }
  uint64_t capacity() const { return pages_->capacity(); }
  // True for impossible counts, too: Put finds them.
  bool MayHaveFreeSlot() const {
    const uint64_t queued = writer_.filled() - Load(other_.progress.taken, std::memory_order_acquire);
    return queued > capacity() || queued + QueuedCalls(Received()) < capacity();
  }

  // kByCall: the consumer holds so many ranges that no return bit is left, or its counts are impossible. kEnded: as
  // kByCall, and from now on. kLost: nothing says whether the consumer has the range, which goes with the connection.
  enum class Outcome : uint8_t { kSent, kFull, kByCall, kEnded, kLost };
  // The range stays as it is until the consumer has read it. REQUIRES: host memory that the broker knows to be mapped;
  // a description of at most direct_channel::Format::kDescriptionBytesMax bytes.
  Outcome Put(Placement::Range& range, std::string_view description) AB_EXCLUDES(mutex_);
  // The same for `size` bytes that were carved for the broker, and of which this process has no views. They are the
  // caller's again unless the result is kSent or kLost.
  Outcome Put(const WrittenArenas::Carving& carving, uint64_t size, std::string_view description) AB_EXCLUDES(mutex_);
  // Waits until there may be room.
  Status AwaitFreeSlot(const DirectWait& how) {
    return pages_->Wait([this] { return MayHaveFreeSlot() || !pages_->stands(); }, how);
  }

  // Frees the ranges that the consumer does not read any more. True: the direct channel has ended, and no range
  // of it is left.
  bool Poll() AB_EXCLUDES(mutex_);
  // Ranges that the consumer has, or is to have.
  uint64_t outstanding() const { return outstanding_count_.load(std::memory_order_relaxed); }

 private:
  // A range that was sent; its place is its return bit.
  struct Sent {
    uint64_t arena = 0;
    uint64_t offset = 0;
    uint64_t index = 0;             // of its entry
    bool has_views = false;         // this process is a holder, too
    std::atomic<bool> left{false};  // the views of this process have gone, if there were any
  };
  static constexpr uint32_t kNone = direct_channel::kReturnBits;
  using Bits = std::array<uint64_t, direct_channel::kReturnWords>;

  // Shares that the consumer received by calls, as it says now.
  uint64_t Received() const { return Load(other_.calls, std::memory_order_acquire); }
  // Shares that it has yet to receive by calls: they wait in the channel, too. Both sides count them, and neither is
  // believed beyond the capacity.
  uint64_t QueuedCalls(uint64_t received) const {
    const uint64_t calls = Load(pages_->control().calls, std::memory_order_acquire);
    return calls > received ? std::min(calls - received, capacity()) : 0;
  }
  // `range`: of which this process has views, or null.
  Outcome Put(direct_channel::Header header, std::string_view description, Placement::Range* range) AB_REQUIRES(mutex_);
  uint32_t FreeBit() const AB_REQUIRES(mutex_);
  void Occupy(const direct_channel::Header& header, bool has_views) AB_REQUIRES(mutex_);
  void Vacate(uint32_t bit) AB_REQUIRES(mutex_);
  // The consumer says that it took so many. From now on it cannot take that back: their slots and ranges may be used
  // again. False: the direct channel ends, and the control block alone says what was taken.
  bool See(uint64_t taken) AB_REQUIRES(mutex_);
  // The consumer, or the broker, does not hold the range any more.
  void Done(uint32_t bit, bool return_it) AB_REQUIRES(mutex_);
  void Settle() AB_REQUIRES(mutex_);

  const std::unique_ptr<DirectPages> pages_;
  Lifeline& lifeline_;
  WrittenArenas& written_;
  direct_channel::ProducerPage& page_;
  const direct_channel::ConsumerPage& other_;
  std::atomic<uint64_t> outstanding_count_{0};
  mutable Mutex mutex_;
  spsc::Writer<direct_channel::Format> writer_;         // under `mutex_`, but for filled
  uint64_t received_ AB_GUARDED_BY(mutex_) = 0;         // by calls, as the consumer last said
  uint64_t seen_ AB_GUARDED_BY(mutex_) = 0;             // as this end's page says
  bool settled_ AB_GUARDED_BY(mutex_) = false;          // it has ended, and what counted is known
  std::array<Sent, direct_channel::kReturnBits> sent_;  // `left` is any thread's, the rest is under `mutex_`
  Bits used_ AB_GUARDED_BY(mutex_){};
  Bits outstanding_ AB_GUARDED_BY(mutex_){};               // of these: the consumer holds them
  Bits parity_ AB_GUARDED_BY(mutex_){};                    // of the return bitmap, when the bit was occupied
  std::vector<uint32_t> lingering_ AB_GUARDED_BY(mutex_);  // not outstanding, but views of this process are left
};

}  // namespace arraybridge

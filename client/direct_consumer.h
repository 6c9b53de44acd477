// A DirectConsumer is the receiving end of a direct channel: what stands there is taken in order, and each slot is given back when its
// arrays have gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "client/direct_pages.h"
#include "client/share_cache.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class DirectConsumer {
 public:
  explicit DirectConsumer(std::unique_ptr<DirectPages> pages)
      : pages_(std::move(pages)),
        page_(*static_cast<direct_channel::ConsumerPage*>(pages_->own())),
        other_(*static_cast<const direct_channel::ProducerPage*>(pages_->other())) {}
  DirectConsumer(const DirectConsumer&) = delete;
  DirectConsumer& operator=(const DirectConsumer&) = delete;

  bool opened() const { return pages_->opened(); }
  // Shares that come by calls, before what stands here.
  uint64_t calls() const { return Load(pages_->control().calls, std::memory_order_acquire); }
  // So many came. The sender may have more room.
  void NoteCalls(uint64_t received) AB_EXCLUDES(mutex_);

  // kByCalls: some come by calls first. kLacksArena: the entry is not taken. kNonsense: what the sender wrote is none.
  enum class Outcome : uint8_t { kTaken, kEmpty, kByCalls, kLacksArena, kNonsense, kEnded };
  // The entry that was sent first, in `entry`; its slot is this caller's until End. `has`: whether this process maps
  // the arena in which it lies.
  Outcome Take(Lifeline& lifeline, uint64_t received, const std::function<bool(const direct_channel::Message&)>& has,
               direct_channel::Message* entry) AB_EXCLUDES(mutex_);
  // Until there may be something. `received`: as for Take.
  Status AwaitEntry(uint64_t received, const DirectWait& how) {
    return pages_->Wait(
        page_.asleep, [this, received] { return MayTake(received); }, how);
  }
  // Its arrays have gone. On any thread, without a lock and without a system call.
  void End(uint64_t slot) noexcept { direct_channel::Flip(page_, slot); }

  // What the last one was: shares of a stream are alike. Null: another one.
  std::shared_ptr<const KnownShare> Known(std::string_view description, uint64_t size) const AB_EXCLUDES(mutex_);
  void Remember(std::shared_ptr<const KnownShare> known) AB_EXCLUDES(mutex_);

 private:
  bool MayTake(uint64_t received) const;

  const std::unique_ptr<DirectPages> pages_;
  direct_channel::ConsumerPage& page_;
  const direct_channel::ProducerPage& other_;
  mutable Mutex mutex_;
  uint64_t tail_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t rung_ AB_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const KnownShare> known_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

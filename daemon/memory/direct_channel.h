// A DirectChannel is how shares go from the one sender of a channel to its one receiver without a call: a page of entries that
// the sender writes, a page in which the receiver says what it took, a control block that the broker writes, and a doorbell each
// (proto/boundary/layouts/direct_channel.h). A doorbell is a pipe: nobody can put a file into it for somebody else to close, as into a
// socket, and each has a description of its own, so that nobody can make a write of another wait. The broker looks at a
// direct channel when it ends it, and believes neither side.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/memory/shared_pages.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/layouts/direct_channel.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

enum class DirectEnd : uint8_t { kSender, kReceiver };
constexpr DirectEnd Other(DirectEnd side) { return side == DirectEnd::kProducer ? DirectEnd::kConsumer : DirectEnd::kProducer; }

// What an end of it maps.
enum class DirectPart : uint8_t { kOwn, kOther, kSign, kBell, kOtherBell };

// Thread-safe.
class DirectChannel {
 public:
  struct Doorbell {
    UniqueFd heard;
    UniqueFd rung;
  };
  // RESOURCE_EXHAUSTED: no descriptor, no memory. REQUIRES: capacity is 1 to direct_channel::kCapacityMax; no other direct channel has had
  // this number, which is not 0.
  static Result<std::unique_ptr<DirectChannel>> Create(uint64_t capacity, uint64_t number);
  ~DirectChannel() = default;
  DirectChannel(const DirectChannel&) = delete;
  DirectChannel& operator=(const DirectChannel&) = delete;

  uint64_t number() const { return control_.number; }

  // A description of its own. FAILED_PRECONDITION: it is mapped, or has ended.
  Result<UniqueFd> Export(DirectEnd side, DirectPart part) const AB_EXCLUDES(mutex_);
  // This side has mapped all of it: nobody else can write its page from now on. Idempotent.
  Status Seal(DirectEnd side) AB_EXCLUDES(mutex_);
  // Both have.
  bool sealed() const { return seals_.load(std::memory_order_acquire) == kBoth; }

  // From now on shares go there; the receiver gets `calls` by calls before. REQUIRES: sealed; one thread at a time,
  // with AddCall.
  void Open(uint64_t calls);
  // One more goes by a call; wakes the receiver. REQUIRES: nothing stands on the direct channel, or the order is lost.
  void AddCall();
  // As the ends say now: nonsense is 0.
  uint64_t standing() const;

  // An entry, a copy. False: it was none that could be sent.
  using Take = std::function<bool(const direct_channel::Message& entry)>;
  // `complete`: nothing that was sent is missing.
  using Ended = std::function<void(bool complete)>;
  // Ends it: takes what stands there, in order, then runs `ended`, then tells both ends what counted, and wakes them.
  // Nonsense is not taken. When this returns it has ended, whoever did that. Neither function may end it.
  void Revoke(const Take& take, const Ended& ended) AB_EXCLUDES(mutex_);
  // Who received has gone: the sender may use again what was received.
  void MarkGone();

 private:
  static constexpr unsigned kBoth = 3;

  DirectChannel(std::unique_ptr<SharedPages> sent, std::unique_ptr<SharedPages> taken, std::unique_ptr<SharedPages> control,
       Doorbell producer_doorbell, Doorbell consumer_doorbell);
  bool TakeAll(const Take& take, uint64_t* head, uint64_t* tail) AB_REQUIRES(mutex_);

  mutable Mutex mutex_;
  const std::unique_ptr<SharedPages> sent_;
  const std::unique_ptr<SharedPages> taken_;
  const std::unique_ptr<SharedPages> control_pages_;
  const direct_channel::ProducerPage& sent_page_;
  const direct_channel::ConsumerPage& taken_page_;
  direct_channel::ControlBlock& control_;
  const uint64_t capacity_;
  std::atomic<unsigned> seals_{0};  // a bit a side
  bool ended_ AB_GUARDED_BY(mutex_) = false;
  const Doorbell producer_doorbell_;  // that the sender hears
  const Doorbell consumer_doorbell_;
};

}  // namespace arraybridge

// A Road is how shares go from the one sender of a channel to its one receiver without a call: a page of entries that
// the sender writes, a page in which the receiver says what it took, a Sign that the broker writes, and a bell each
// (proto/boundary/road_layout.h). A bell is a pipe: nobody can put a file into it for somebody else to close, as into a
// socket, and each has a description of its own, so that nobody can make a write of another wait. The broker looks at a
// road when it ends it, and believes neither side.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/memory/shared_pages.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/road_layout.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

enum class RoadSide : uint8_t { kSender, kReceiver };
constexpr RoadSide Other(RoadSide side) { return side == RoadSide::kSender ? RoadSide::kReceiver : RoadSide::kSender; }

// What an end of it maps.
enum class RoadPart : uint8_t { kOwn, kOther, kSign, kBell, kOtherBell };

// Thread-safe.
class Road {
 public:
  struct Bell {
    UniqueFd heard;
    UniqueFd rung;
  };
  // RESOURCE_EXHAUSTED: no descriptor, no memory. REQUIRES: capacity is 1 to road::kCapacityMax; no other road has had
  // this number, which is not 0.
  static Result<std::unique_ptr<Road>> Create(uint64_t capacity, uint64_t number);
  ~Road() = default;
  Road(const Road&) = delete;
  Road& operator=(const Road&) = delete;

  uint64_t number() const { return sign_.number; }

  // A description of its own. FAILED_PRECONDITION: it is mapped, or has ended.
  Result<UniqueFd> Export(RoadSide side, RoadPart part) const AB_EXCLUDES(mutex_);
  // This side has mapped all of it: nobody else can write its page from now on. Idempotent.
  Status Seal(RoadSide side) AB_EXCLUDES(mutex_);
  // Both have.
  bool sealed() const { return seals_.load(std::memory_order_acquire) == kBoth; }

  // From now on shares go there; the receiver gets `calls` by calls before. REQUIRES: sealed; one thread at a time,
  // with AddCall.
  void Open(uint64_t calls);
  // One more goes by a call; wakes the receiver. REQUIRES: nothing stands on the road, or the order is lost.
  void AddCall();
  // As the ends say now: nonsense is 0.
  uint64_t standing() const;

  // An entry, a copy. False: it was none that could be sent.
  using Take = std::function<bool(const road::Message& entry)>;
  // `complete`: nothing that was sent is missing.
  using Ended = std::function<void(bool complete)>;
  // Ends it: takes what stands there, in order, then runs `ended`, then tells both ends what counted, and wakes them.
  // Nonsense is not taken. When this returns it has ended, whoever did that. Neither function may end it.
  void Revoke(const Take& take, const Ended& ended) AB_EXCLUDES(mutex_);
  // Who received has gone: the sender may use again what was received.
  void MarkGone();

 private:
  static constexpr unsigned kBoth = 3;

  Road(std::unique_ptr<SharedPages> sent, std::unique_ptr<SharedPages> taken, std::unique_ptr<SharedPages> sign,
       Bell senders_bell, Bell receivers_bell);
  bool TakeAll(const Take& take, uint64_t* head, uint64_t* tail) AB_REQUIRES(mutex_);

  mutable Mutex mutex_;
  const std::unique_ptr<SharedPages> sent_;
  const std::unique_ptr<SharedPages> taken_;
  const std::unique_ptr<SharedPages> sign_pages_;
  const road::SentPage& sent_page_;
  const road::TakenPage& taken_page_;
  road::Sign& sign_;
  const uint64_t capacity_;
  std::atomic<unsigned> seals_{0};  // a bit a side
  bool ended_ AB_GUARDED_BY(mutex_) = false;
  const Bell senders_bell_;  // that the sender hears
  const Bell receivers_bell_;
};

}  // namespace arraybridge

// A Ring is how a session publishes without a call: an entry, a fence, and a wake-up if the broker sleeps. It asks the
// broker for the pages with the first publish that nobody waits for; what does not go this way goes by a call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <arraybridge/array.h>

#include "client/late_errors.h"
#include "client/written_ring.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

class Session;
struct Answer;

// Thread-safe.
class Ring {
 public:
  Ring(std::string ns, std::shared_ptr<LateErrors> errors) : ns_(std::move(ns)), errors_(std::move(errors)) {}

  // Something that nobody waits for is about to be published by a call. Asks for the pages, once; waits for nothing.
  void Foresee(Session& session) AB_EXCLUDES(mutex_);
  // `message`: a PublishRequest, without its namespace, for `range`, which the broker holds from now on. False: nothing
  // was done; publish it by a call.
  bool Enter(Session& session, std::string_view message, std::string_view name,
             const std::shared_ptr<Placement::Range>& range) AB_EXCLUDES(mutex_);
  // The same for bytes that the broker holds already, and nobody else.
  bool Enter(Session& session, std::string_view message, std::string_view name, uint64_t arena, uint64_t offset)
      AB_EXCLUDES(mutex_);
  // The broker takes entries.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // Learns what became of the entries that the broker has taken: what failed is noted among the errors, and its range
  // is free again.
  void Look(Session& session) AB_EXCLUDES(mutex_);
  // The connection is lost: what the broker is not known to have taken was not published.
  void GiveUp(Session& session, const Status& why) AB_EXCLUDES(mutex_);
  // Entries that the broker is not known to have taken.
  uint64_t unconfirmed() const AB_EXCLUDES(mutex_);
  // Entries so far.
  uint64_t entered() const { return entered_.load(std::memory_order_relaxed); }
  bool in(std::string_view ns) const { return ns == ns_; }

 private:
  struct Sent {
    std::string name;
    uint64_t arena = 0;
    uint64_t offset = 0;
    std::weak_ptr<Placement::Range> range;
  };

  void HaveEntries(Result<Answer> answer) AB_EXCLUDES(mutex_);
  void HaveBell(Session& session, const Result<Answer>& answer) AB_EXCLUDES(mutex_);
  void HaveSeal(const Result<Answer>& answer) AB_EXCLUDES(mutex_);
  bool Enter(Session& session, std::string_view message, std::string_view name, uint64_t arena, uint64_t offset,
             const std::shared_ptr<Placement::Range>* range) AB_EXCLUDES(mutex_);
  bool LookLocked(Session& session) AB_REQUIRES(mutex_);
  void Fail(Session& session, const Sent& sent, const Status& why) AB_REQUIRES(mutex_);

  const std::string ns_;
  const std::shared_ptr<LateErrors> errors_;
  std::atomic<bool> asked_{false};
  std::atomic<bool> ready_{false};  // the broker takes entries
  std::atomic<uint64_t> entered_{0};
  mutable Mutex mutex_;
  UniqueFd entries_ AB_GUARDED_BY(mutex_);  // whose Bell is on its way
  std::unique_ptr<WrittenRing> pages_ AB_GUARDED_BY(mutex_);
  uint64_t head_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t seen_ AB_GUARDED_BY(mutex_) = 0;   // what became of so many entries is known
  uint64_t woken_ AB_GUARDED_BY(mutex_) = 0;  // the sleep from which the broker was woken last
  std::array<Sent, ring::kEntries> sent_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

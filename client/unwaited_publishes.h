// UnwaitedPublishes are what a session published without waiting for the answer: a request in the session's queue, and
// a completion only if it failed. A publish that cannot go this way is sent as a waited request instead.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arraybridge/array.h>

#include "client/arena.h"
#include "client/deferred_errors.h"
#include "client/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. REQUIRES: the Lifeline and the arenas outlive it.
class UnwaitedPublishes {
 public:
  UnwaitedPublishes(std::string ns, Lifeline& lifeline, WrittenArenas& written, std::shared_ptr<DeferredErrors> errors)
      : ns_(std::move(ns)), lifeline_(lifeline), written_(written), errors_(std::move(errors)) {}
  UnwaitedPublishes(const UnwaitedPublishes&) = delete;
  UnwaitedPublishes& operator=(const UnwaitedPublishes&) = delete;

  // `message`: a PublishRequest, without its namespace, for `range`, which the broker holds from now on. False: nothing
  // was done; publish it by a waited request.
  bool Submit(std::string_view message, std::string_view name, const std::shared_ptr<Placement::Range>& range)
      AB_EXCLUDES(mutex_);
  // The same for bytes that the broker holds already, and nobody else.
  bool Submit(std::string_view message, std::string_view name, uint64_t arena, uint64_t offset) AB_EXCLUDES(mutex_);
  // Learns what became of those that the daemon has served: a failed one is noted among the errors, and its range is
  // free again.
  void Confirm() AB_EXCLUDES(mutex_);
  // The connection is lost: those that the daemon is not known to have served were not published.
  void GiveUp(const Status& why) AB_EXCLUDES(mutex_);
  // Those that the daemon is not known to have served.
  uint64_t unconfirmed() AB_EXCLUDES(mutex_);
  // All so far.
  uint64_t submitted() const { return submitted_.load(std::memory_order_relaxed); }
  bool in(std::string_view ns) const { return ns == ns_; }

 private:
  struct Sent {
    Lifeline::Submitted submitted;
    std::string name;
    uint64_t arena = 0;
    uint64_t offset = 0;
    std::weak_ptr<Placement::Range> range;
  };

  bool Submit(std::string_view message, Sent sent, const WrittenArena* arena) AB_EXCLUDES(mutex_);
  void ConfirmLocked() AB_REQUIRES(mutex_);
  void Apply(const Lifeline::Confirmed& confirmed) AB_REQUIRES(mutex_);
  void Fail(const Sent& sent, const Status& why) AB_REQUIRES(mutex_);

  const std::string ns_;
  Lifeline& lifeline_;
  WrittenArenas& written_;
  const std::shared_ptr<DeferredErrors> errors_;
  std::atomic<uint64_t> submitted_{0};
  Mutex mutex_;
  std::deque<Sent> sent_ AB_GUARDED_BY(mutex_);  // in order; as many as there are slots in the queue, at most
  // Of publishes that are not known to be served; in order.
  std::vector<Lifeline::Failed> failed_ AB_GUARDED_BY(mutex_);
  bool given_up_ AB_GUARDED_BY(mutex_) = false;  // with the connection
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// UnwaitedPublishes tracks the publishes that a session does not wait for. Each is a request in the session's queue,
// and has a completion only if it fails. A publish that cannot go this way is sent as a waited request instead.
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

#include "client/arenas/arena.h"
#include "client/lifeline/deferred_errors.h"
#include "client/lifeline/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. REQUIRES: the Lifeline and the arenas outlive it.
class UnwaitedPublishes {
 public:
  UnwaitedPublishes(std::string ns, Lifeline& lifeline, WrittenArenas& written, std::shared_ptr<DeferredErrors> errors)
      : ns_(std::move(ns)), lifeline_(lifeline), written_(written), errors_(std::move(errors)) {}

  // Submits a publish. `message`: a PublishRequest without its namespace, for `range`, which the broker holds from now
  // on. Returns false if nothing was done; the caller then sends a waited request.
  bool Submit(std::string_view message, std::string_view name, const std::shared_ptr<Placement::Range>& range)
      AB_EXCLUDES(mutex_);
  // The same for a range that only the broker holds.
  bool Submit(std::string_view message, std::string_view name, uint64_t arena, uint64_t offset) AB_EXCLUDES(mutex_);
  // Handles the publishes that the daemon has served. The error of a failed one is recorded, and its range is free
  // again.
  void Confirm() AB_EXCLUDES(mutex_);
  // Called when the connection is lost: the publishes that are not known to be served are recorded as failed.
  void GiveUp(const Status& why) AB_EXCLUDES(mutex_);
  // The number of publishes that are not known to be served.
  uint64_t unconfirmed() AB_EXCLUDES(mutex_);
  // The number of publishes submitted so far.
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
  std::deque<Sent> sent_ AB_GUARDED_BY(mutex_);  // in order; at most as many as the queue has slots
  // Failures that belong to publishes not known to be served, in order.
  std::vector<Lifeline::Failed> failed_ AB_GUARDED_BY(mutex_);
  bool given_up_ AB_GUARDED_BY(mutex_) = false;  // set when the connection is lost
};

}  // namespace arraybridge

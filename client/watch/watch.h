// SPDX-License-Identifier: Apache-2.0
// A Watch::Feed is the state that copies of a Watch share: an open watch, the session on which it was opened, and the
// events received.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>

#include <arraybridge/broker.h>
#include <arraybridge/watch.h>

#include "client/session/session.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Watch::Feed : public std::enable_shared_from_this<Feed> {
 public:
  Feed(std::shared_ptr<Session> session, const Broker::Options& options, uint64_t id);
  // Closes it.
  ~Feed();

  Result<Event> Next(std::optional<std::chrono::milliseconds> timeout);
  Status Close();

  // Closes a watch that no Watch object refers to. `deadline`: as for Lifeline::Post.
  static void CloseById(Session& session, uint64_t watch, std::optional<Deadline> deadline);

 private:
  bool is_inherited() const;
  Status CheckHere() const;
  // Requests events and keeps those that arrive. Returns an error only if it stops waiting for the answer, which then
  // arrives later.
  Status Ask(std::chrono::milliseconds slice);
  void Arrived(const Result<Answer>& answer);
  bool is_behind();
  std::optional<Result<Event>> TakeKept();

  std::shared_ptr<Session> session_;
  const Broker::Options options_;
  const uint64_t id_;
  const uint64_t forks_;  // of the process in which it was opened
  std::atomic<bool> closed_{false};

  Mutex mutex_;
  uint64_t unanswered_ AB_GUARDED_BY(mutex_) = 0;  // requests whose callers gave up
  std::deque<Event> kept_ AB_GUARDED_BY(mutex_);
  Status failed_ AB_GUARDED_BY(mutex_);  // reported after the kept events
};

}  // namespace arraybridge

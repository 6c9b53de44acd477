// A Watch::Feed is what the copies of a Watch share: an open watch, on the session on which it was opened, and what has
// come of it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>

#include <arraybridge/broker.h>
#include <arraybridge/watch.h>

#include "client/session.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Watch::Feed : public std::enable_shared_from_this<Feed> {
 public:
  Feed(std::shared_ptr<Session> session, const Broker::Options& options, uint64_t id);
  // Closes it.
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  Result<Event> Next(std::optional<std::chrono::milliseconds> timeout);
  Status Close();

  // Closes one that no Watch has. `deadline`: as for Lifeline::Post.
  static void Forget(Session& session, uint64_t watch, std::optional<Deadline> deadline);

 private:
  bool is_inherited() const;
  Status CheckHere() const;
  std::chrono::milliseconds Slice(const std::optional<Deadline>& until) const;
  // Keeps what came; the status of what did not, but for CANCELLED, in which the answer is yet to come.
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
  uint64_t unanswered_ AB_GUARDED_BY(mutex_) = 0;  // requests whose caller has gone
  std::deque<Event> kept_ AB_GUARDED_BY(mutex_);
  Status failed_ AB_GUARDED_BY(mutex_);  // after what is kept
};

}  // namespace arraybridge

// A Channel::End is what the copies of a Channel share: an open end, on the session on which it was opened.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include <arraybridge/broker.h>
#include <arraybridge/channel.h>

#include "client/codec.h"
#include "client/session.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Channel::End : public std::enable_shared_from_this<End> {
 public:
  End(std::shared_ptr<Session> session, const Broker::Options& options, std::string name,
      const codec::OpenedChannel& opened);
  // Abandons it, unless it was closed.
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  const std::string& name() const { return name_; }
  uint64_t capacity() const { return capacity_; }

  Status Send(const Placement& placement, const SendOptions& options);
  Result<Acquired> Receive(const ReceiveOptions& options);
  Status Close(bool complete);

  // Abandons an end that nobody has. Does not wait.
  static void Forget(Session& session, uint64_t channel);

 private:
  using Until = std::optional<Deadline>;

  bool is_inherited() const;
  Status CheckHere() const;
  Status Explain(Status failed) const;
  std::chrono::milliseconds Slice(const Until& until) const;
  Result<Answer> Ask(std::chrono::milliseconds slice);
  void Arrived(Result<Answer> answer);
  bool is_behind();
  std::optional<Answer> TakeKept();

  std::shared_ptr<Session> session_;
  const Broker::Options options_;
  const std::string name_;
  const uint64_t id_;
  const uint64_t capacity_;
  const uint64_t forks_;  // of the process in which it was opened
  std::atomic<bool> closed_{false};

  Mutex mutex_;
  uint64_t unanswered_ AB_GUARDED_BY(mutex_) = 0;  // requests whose caller has gone
  std::deque<Answer> kept_ AB_GUARDED_BY(mutex_);  // what came for them, in the order in which it was sent
};

}  // namespace arraybridge

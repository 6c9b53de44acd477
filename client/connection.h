// A Connection is a Broker's way to the daemon: the session of now, or a new one after the daemon restarted. A forked
// child gets a Connection of its own.
#pragma once

#include <chrono>
#include <memory>

#include <arraybridge/broker.h>

#include "client/memory/mapper_table.h"
#include "client/reclaimer.h"
#include "client/session.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static std::shared_ptr<Connection> Make(const Broker::Options& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The session of now; connects if there is none, or if it is lost.
  Result<std::shared_ptr<Session>> Connected(Deadline deadline);
  // The session of now, or null: never connects.
  std::shared_ptr<Session> current() const;
  // A call that any session may answer: once more on a new one if the broker cannot have seen it. `broker_id`, if
  // given, says which life of the broker answered.
  Result<Answer> Call(Verb verb, std::string_view payload, Deadline deadline, std::string* broker_id = nullptr);
  // What failed of publishes that nobody waited for, and nobody has been told of yet.
  Status TakeDeferredErrors() { return shared_.deferred_errors->Take(); }
  Status AfterDeferredErrors(std::string_view share, const Status& why) {
    return shared_.deferred_errors->TakeBefore(share, why);
  }
  // The same, once the broker has taken all of them, or the connection is lost. DEADLINE_EXCEEDED: it does not answer.
  Status Confirm(Deadline deadline);
  // As Broker::OutcomeOf.
  Result<Outcome> OutcomeOf(const Status& failed, Deadline deadline);
  // Gives back what this process does not use, and waits for the answer.
  Status Flush(Deadline deadline);
  Reclaimer& reclaimer() { return *shared_.reclaimer; }
  const MapperTable& mappers() const { return *shared_.mappers; }

 private:
  explicit Connection(const Broker::Options& options);
  std::chrono::milliseconds Idle();

  const Broker::Options options_;
  const Session::Shared shared_;

  mutable Mutex mutex_;
  ConditionVariable connected_;
  bool connecting_ AB_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Session> session_ AB_GUARDED_BY(mutex_);
  Deadline next_sync_{};  // of the reclaimer's thread
};

}  // namespace arraybridge

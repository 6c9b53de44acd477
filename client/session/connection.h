// SPDX-License-Identifier: Apache-2.0
// A Connection is a Broker's access to the daemon: the current session, or a new one after the daemon has restarted. A
// forked child makes its own Connection.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <arraybridge/broker.h>

#include "client/memory/mapper_table.h"
#include "client/process/reclaimer.h"
#include "client/session/session.h"
#include "client/wire/codec.h"
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

  // The current session. Connects if there is none or if it is lost.
  Result<std::shared_ptr<Session>> Connected(Deadline deadline);
  // The current session, or null. Never connects.
  std::shared_ptr<Session> current() const;
  // Sends a request that any session can serve. Retries once on a new session if the broker cannot have seen it.
  // `broker_id`, if given, receives the id of the broker that answered.
  Result<Answer> Call(Verb verb, std::string_view payload, Deadline deadline, std::string* broker_id = nullptr);
  // As Call: the answer, and the session that got it. `late` takes an answer that comes after the caller has given up.
  // `check`: whether this session may get the request.
  template <class Message, class Late, class Check = Status (*)(const Session&)>
  Result<std::pair<Message, std::shared_ptr<Session>>> Ask(
      Verb verb, const std::string& request, Deadline deadline, Late late,
      Check check = [](const Session&) { return Ok(); }) {
    for (bool again = true;; again = false) {
      AB_ASSIGN_OR_RETURN(auto session, Connected(deadline));
      AB_RETURN_IF_ERROR(check(*session));
      const auto handler = [late, weak = std::weak_ptr(session)](const Result<Answer>& answer) {
        const auto self = weak.lock();
        if (!self || !answer.ok()) return;
        if (const auto message = codec::Read<Message>(answer->payload); message.ok()) late(*self, *message);
      };
      auto answer = session->Call(verb, request, deadline, handler);
      if (!answer.ok() && again && answer.status().reason() == Lifeline::kNotSent) continue;
      if (!answer.ok()) return answer.status();
      AB_ASSIGN_OR_RETURN(auto message, codec::Read<Message>(answer->payload));
      return std::pair(std::move(message), std::move(session));
    }
  }
  // The errors of unwaited publishes that have not been reported yet.
  Status TakeDeferredErrors() { return shared_.deferred_errors->Take(); }
  Status AfterDeferredErrors(std::string_view share, const Status& why) {
    return shared_.deferred_errors->TakeBefore(share, why);
  }
  // As TakeDeferredErrors, after the broker has served all unwaited publishes or the connection is lost.
  // DEADLINE_EXCEEDED: the broker does not answer.
  Status Confirm(Deadline deadline);
  // As Broker::OutcomeOf.
  Result<Outcome> OutcomeOf(const Status& failed, Deadline deadline);
  // Gives back the memory that this process does not use, and waits for the broker's answer.
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
  Deadline next_sync_{};  // used by the reclaimer's thread only
};

}  // namespace arraybridge

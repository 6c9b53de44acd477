// SPDX-License-Identifier: Apache-2.0
// A Connection is a Broker's access to the daemon: the current session, or a new one after the daemon has restarted. A
// forked child makes its own Connection.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
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

  // The current session. Connects if there is none or if it is lost.
  Result<std::shared_ptr<Session>> Connected(Deadline deadline);
  // The current session, or null. Never connects.
  std::shared_ptr<Session> current() const;
  // Takes the payload of an answer that comes after the caller has given up.
  using Late = std::function<void(Session&, std::string_view payload)>;
  // Whether this session may get the request.
  using Check = std::function<Status(const Session&)>;
  // The answer to a request that any session can serve, and the session that got it. Retries once on a new session if
  // the broker cannot have seen the request.
  Result<std::pair<Answer, std::shared_ptr<Session>>> Call(Verb verb, std::string_view payload, Deadline deadline,
                                                           const Late& late = {}, const Check& check = {});
  // The same, with the message that is read. Its fields are numbers: texts would be views of bytes that are gone.
  template <class Message>
  Result<std::pair<Message, std::shared_ptr<Session>>> Ask(Verb verb, std::string_view request, Deadline deadline,
                                                           void (*late)(Session&, const Message&),
                                                           const Check& check = {}) {
    const auto read = [late](Session& session, std::string_view payload) {
      if (const auto message = codec::Read<Message>(payload); message.ok()) late(session, *message);
    };
    AB_ASSIGN_OR_RETURN(auto answered, Call(verb, request, deadline, read, check));
    AB_ASSIGN_OR_RETURN(auto message, codec::Read<Message>(answered.first.payload));
    return std::pair(std::move(message), std::move(answered.second));
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

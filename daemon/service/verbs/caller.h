// SPDX-License-Identifier: Apache-2.0
// A Caller is the session that calls a verb, and its door. An Answer is the result of the verb.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <google/protobuf/message_lite.h>

#include "daemon/broker/broker.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/wire/passed_fd.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// A caller at a lifeline gets descriptors; a caller at the gRPC door gets tickets for them.
struct Caller {
  SessionId session{};
  Door door = Door::kLifeline;
  bool hears = true;  // false: it wants no answer, so no answer may grant it a resource
  // Reports progress of the request to the caller. Called on any thread. Empty: the caller wants no reports.
  std::function<void()> progress{};
  uint64_t request = 0;  // the session's number for the request, unique in the session; 0: unknown
  bool again = false;    // the previous daemon may have served it
  // The request waits no longer than this, whatever timeout it states: then its call ends.
  uint64_t timeout_max_ms = UINT64_MAX;

  uint64_t TimeoutOf(uint64_t timeout_ms) const { return std::min(timeout_ms, timeout_max_ms); }
};

struct Answer {
  std::string message;    // the bytes of the verb's answer
  PassedFd descriptor{};  // travels with the message on a lifeline; always invalid at the gRPC door
};

template <class Message>
Answer AnswerOf(const Message& message) {
  if constexpr (std::derived_from<Message, google::protobuf::MessageLite>) {
    return {message.SerializeAsString()};
  } else {
    return {wire::Encode(message)};
  }
}

// Called exactly once, on any thread; never after Cancel or the end of the session.
using Reply = std::function<void(Result<Answer>)>;
// Makes the reply of a request that has to wait. To be called once at most, before the verb returns.
using Later = std::function<Reply()>;

// Says this answer. It is shared because a std::function must be copyable, and a descriptor is not.
inline Deliver Delivery(Reply reply, Result<Answer> answer) {
  return [reply = std::move(reply), answer = std::make_shared<Result<Answer>>(std::move(answer))] {
    reply(std::move(*answer));
  };
}

// The result of a verb that may wait.
struct Served {
  std::optional<Result<Answer>> now;  // nothing: the reply says it later, or has said it
  WaiterId waiter{};                  // of a request that waits and can be cancelled
};

}  // namespace arraybridge::daemon

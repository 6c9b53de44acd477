// SPDX-License-Identifier: Apache-2.0
// A Caller is the session that calls a verb, and its door. An Answer is the result of the verb.
#pragma once

#include <functional>

#include "daemon/broker/broker.h"
#include "daemon/service/lifeline/passed_fd.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// A caller at a lifeline gets descriptors; a caller at the gRPC door gets tickets for them.
struct Caller {
  SessionId session{};
  Door door = Door::kLifeline;
  bool hears = true;  // false: it wants no answer, so no answer may grant it a resource
  // Reports progress of the request to the caller. Called on any thread. Empty: the caller wants no reports.
  std::function<void()> progress{};
  uint64_t request = 0;  // the session's number for the request, unique in the session; 0: unknown
  bool again = false;    // the previous daemon may have served it
};

template <class Message>
struct Answer {
  Message message;
  PassedFd descriptor;  // travels with the message on a lifeline; always invalid at the gRPC door
};

// Called exactly once, on any thread, possibly before the verb returns; never after Cancel or the end of the session.
template <class Message>
using Reply = std::function<void(Result<Answer<Message>>)>;

}  // namespace arraybridge

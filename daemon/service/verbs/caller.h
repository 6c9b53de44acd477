// A Caller is who asks for a verb, and at which door. An Answer is what the verb answers.
#pragma once

#include <functional>

#include "daemon/broker/broker.h"
#include "daemon/service/passed_fd.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// A caller at a lifeline gets descriptors, one at the gRPC door gets tickets for them.
struct Caller {
  SessionId session{};
  Door door = Door::kLifeline;
  bool hears = true;  // false: it wants no answer, so no resource may be handed to it in one
  // Tells it that the work of its request advances; called on any thread. Empty: it does not want to know.
  std::function<void()> progress{};
};

template <class Message>
struct Answer {
  Message message;
  PassedFd descriptor;  // sent along on a lifeline; always invalid at the gRPC door
};

// Called exactly once, on any thread, maybe before the verb returns; not at all after Cancel or the session's end.
template <class Message>
using Reply = std::function<void(Result<Answer<Message>>)>;

}  // namespace arraybridge

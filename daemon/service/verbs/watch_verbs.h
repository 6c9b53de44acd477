// SPDX-License-Identifier: Apache-2.0
// WatchVerbs: Watch. A watcher asks for the events that have come, and waits if there are none. It never gets more than
// it asked for, and other answers never wait behind its own. A stream of gRPC asks when the client has read a message.
#pragma once

#include <optional>
#include <string_view>
#include <thread>

#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe. It has one thread, which waits for events.
class WatchVerbs : VerbParts {
 public:
  // All arguments outlive it.
  explicit WatchVerbs(const VerbParts& parts);

  // Opens a watch, or answers with the events of an open one, and waits for them. `bytes`: those of the request.
  Served Watch(const Caller& caller, const wire::WatchRequest& request, std::string_view bytes, const Later& later);
  // False: the watch is not open. Answers a request that waits on it.
  bool CloseWatch(const Caller& caller, WatcherId watcher);
  // Ends its thread. Not thread-safe.
  void Stop();

 private:
  // Nothing: there are none.
  Result<std::optional<Answer>> TakeEvents(const Caller& caller, WatcherId watcher);
  Result<Answer> OpenOrClose(const Caller& caller, const wire::WatchRequest& request);
  void SpreadNews();

  std::thread news_;  // last: it uses all of the above
};

}  // namespace arraybridge::daemon

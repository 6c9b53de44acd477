// SPDX-License-Identifier: Apache-2.0
// WatchVerbs: Watch. A watcher asks for the events that have come, and waits if there are none. It never gets more than
// it asked for, and other answers never wait behind its own. At the gRPC door the stream asks again each time the
// client has read the last message.
#pragma once

#include <optional>
#include <string_view>
#include <thread>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/caller.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe. It has one thread, which waits for events.
class WatchVerbs {
 public:
  // All arguments outlive it.
  WatchVerbs(const Config& config, Broker& broker, const Admission& admission, WaitingLine& line);

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

  const Config& config_;
  Broker& broker_;
  const Admission& admission_;
  WaitingLine& line_;
  std::thread news_;  // last: it uses all of the above
};

}  // namespace arraybridge::daemon

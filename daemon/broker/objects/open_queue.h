// SPDX-License-Identifier: Apache-2.0
// An OpenQueue is the queue of one session, and the namespace that its unwaited publishes go to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/broker/ledger/ids.h"
#include "daemon/memory/shared_pages/session_queue.h"

namespace arraybridge::daemon {

struct OpenQueue {
  SessionId session{};
  std::optional<uint32_t> owner;  // of the namespace; none: the session may not write there
  std::string ns;
  std::shared_ptr<SessionQueue> queue;  // never null
};

}  // namespace arraybridge::daemon

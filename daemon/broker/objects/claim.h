// SPDX-License-Identifier: Apache-2.0
// A Claim is the right of one session to make the share of a name, for which other sessions wait. It ends when the
// session publishes the name, releases the claim, or ends. After its lifetime the next session that asks takes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/broker/ledger/ids.h"

namespace arraybridge::daemon {

struct Claim {
  uint64_t number = 0;  // one of the shares' generations
  SessionId session{};
  uint32_t owner = 0;  // of the namespace
  std::string ns;
  std::string name;
  std::chrono::steady_clock::time_point expires;
};

}  // namespace arraybridge::daemon

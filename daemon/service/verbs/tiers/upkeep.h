// SPDX-License-Identifier: Apache-2.0
// Upkeep is what the operator's terms want of files without a request: named shares of the namespaces in tiers.durable
// are kept, and host memory of which more than tiers.high is in use gets room down to tiers.low.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>

#include "daemon/broker/verbs/tiers/tiers.h"
#include "daemon/config/config.h"
#include "daemon/moves/counted_mover.h"
#include "daemon/service/verbs/tiers/rooms.h"

namespace arraybridge::daemon {

// Two threads use it: one calls Keep, and one MakeRoom.
class Upkeep {
 public:
  // How often Keep and MakeRoom are called if they have nothing more to do.
  static constexpr std::chrono::milliseconds kPeriod{500};

  // All arguments outlive it. `settle`: how long processes keep memory that moved shares have left.
  Upkeep(const Tiers& tiers, const TierTerms& terms, std::chrono::milliseconds settle)
      : tiers_(tiers), terms_(terms), settle_(settle) {}

  bool is_wanted() const { return terms_.high != 0 || !terms_.durable.empty(); }
  // Keeps a bounded number of shares. True: call it again at once.
  bool Keep(CountedMover& mover);
  // Moves shares out until memory has room, or a request wants some. `freed`: memory has become free.
  void MakeRoom(Rooms& rooms, CountedMover& mover, const std::function<void()>& freed);

 private:
  const Tiers& tiers_;
  const TierTerms& terms_;
  const std::chrono::milliseconds settle_;
  std::map<Tiers::NamespacePlace, ShareId> kept_;  // all shares up to this one are kept, or cannot be
  std::chrono::steady_clock::time_point next_look_;
};

}  // namespace arraybridge::daemon

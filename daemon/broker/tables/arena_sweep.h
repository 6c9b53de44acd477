// SPDX-License-Identifier: Apache-2.0
// An ArenaSweep seals arenas without a writer and frees dying arenas that no process has mapped. It takes them with the
// broker's lock held and works on them without the lock.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/broker/tables/arenas.h"

namespace arraybridge::daemon {

class ArenaSweep {
 public:
  // With the lock held.
  ArenaSweep(Arenas& arenas, Clock::time_point now);
  // Without the lock. Slow: O(bytes). Returns the freed bytes.
  uint64_t Run();
  // With the lock held.
  void Finish(Arenas& arenas, Clock::time_point now);

 private:
  struct Freed {
    ArenaId arena{};
    Device device;
    HandleKind kind{};
    uint64_t bytes = 0;
    FreeCause by{};
    uint32_t record = 0;
  };

  void Seal();
  bool IsMapped(const Arena& arena) const;

  Arenas::Swept taken_;
  const size_t dying_;
  std::vector<std::pair<ArenaId, Result<Immutability>>> seals_;
  std::vector<Freed> freed_;
};

}  // namespace arraybridge::daemon

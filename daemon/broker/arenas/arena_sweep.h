// An ArenaSweep seals the arenas without a writer and frees the dying ones that no process has mapped: what it takes
// with the broker's lock held it works on without it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/broker/arenas/arenas.h"

namespace arraybridge {

class ArenaSweep {
 public:
  // With the lock held.
  ArenaSweep(Arenas& arenas, Clock::time_point now);
  // Without the lock. Slow: O(bytes). Bytes that were freed.
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
  };

  void Seal();
  bool IsMapped(const Arena& arena) const;

  Arenas::Swept taken_;
  const size_t dying_;
  std::vector<std::pair<ArenaId, Result<Immutability>>> seals_;
  std::vector<Freed> freed_;
};

}  // namespace arraybridge

// A Session is one connected client process: what it leases, what it made, what it was given.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

#include "daemon/broker/arena.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/share.h"
#include "daemon/broker/ticket.h"

namespace arraybridge {

struct Session {
  // What it has of one arena.
  struct Use {
    uint64_t leases = 0;
    bool given = false;  // a read descriptor, of which the client has not said that it dropped the mapping
  };

  SessionId id{};
  Token token{};
  Peer peer;
  Clock::time_point born;
  std::map<LeaseId, Share*> leases;
  std::unordered_map<Arena*, Use> uses;
  std::map<ArenaId, Arena*> arenas;  // that it made, as long as they live; also those it gave back
  uint64_t allocating = 0;           // arenas being populated for it right now
  std::deque<RangeOfArena> returned;
  Tickets tickets;
};

}  // namespace arraybridge

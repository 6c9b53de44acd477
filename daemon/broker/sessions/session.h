// A Session is one connected client process: what it leases, what it made, what it was given.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "daemon/broker/arenas/arena.h"
#include "daemon/broker/arenas/ticket.h"
#include "daemon/broker/calls.h"
#include "daemon/broker/channels/channel.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/quota/account.h"
#include "daemon/broker/sessions/open_queue.h"
#include "daemon/broker/sessions/peer.h"
#include "daemon/broker/shares/holding.h"
#include "daemon/broker/shares/share.h"

namespace arraybridge {

class Namespace;

struct Session {
  // What it has of one arena.
  struct Use {
    uint64_t leases = 0;
    bool given = false;  // a read descriptor, of which the client has not said that it dropped the mapping
  };

  SessionId id{};
  Token token{};
  Peer peer;
  std::shared_ptr<Account> account;           // its user's; never null
  std::shared_ptr<const std::string> client;  // the peer's name for itself, for those who remember it
  Clock::time_point born;
  std::map<LeaseId, Share*> leases;
  std::set<LeaseId> awaiting;  // of these: granted with an event to wait for
  std::unordered_map<Arena*, Use> uses;
  std::map<ArenaId, Arena*> arenas;  // that it made, as long as they live; also those it gave back
  uint64_t allocating = 0;           // arenas being populated for it right now
  std::deque<RangeOfArena> returned;
  // What it published with an event: until the fence is done and nobody leases it who was told the event.
  std::map<ShareId, Share*> fenced;
  Tickets tickets;
  std::vector<Namespace*> holds_in;         // where it has a page of holds
  Pins pinned;                              // in all of these, as the last look at each of them found
  std::shared_ptr<SessionQueue> queue;      // null until it asks for one
  std::map<ChannelEndId, ChannelEnd> ends;  // of channels, that it has open
  std::set<std::string> watches;            // namespaces that users share, of which it was to be told
  // Of one that has ended and is not cleared away yet: when, and how far that has come in the first of its arenas.
  Clock::time_point ended;
  RangeOfArena clearing;
};

}  // namespace arraybridge

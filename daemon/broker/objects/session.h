// SPDX-License-Identifier: Apache-2.0
// A Session is one connected client process: its leases, its arenas and shares, and its descriptors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "daemon/broker/ledger/account.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/channel.h"
#include "daemon/broker/objects/claim.h"
#include "daemon/broker/objects/namespace_hazards.h"
#include "daemon/broker/objects/open_queue.h"
#include "daemon/broker/objects/peer.h"
#include "daemon/broker/objects/share.h"
#include "daemon/broker/objects/ticket.h"

namespace arraybridge::daemon {

class Namespace;

struct Session {
  // The session's use of one arena.
  struct Use {
    uint64_t leases = 0;
    bool given = false;  // it received a read descriptor and has not reported that it dropped the mapping
  };

  SessionId id{};
  Token token{};
  Peer peer;
  std::shared_ptr<Account> account;           // of its user; never null
  std::shared_ptr<const std::string> client;  // the peer's name for itself, shared with histories
  Clock::time_point born;
  std::map<LeaseId, Share*> leases;
  std::set<LeaseId> awaiting;  // of these: granted with an event to wait for
  std::unordered_map<Arena*, Use> uses;
  std::map<ArenaId, Arena*> arenas;  // arenas that it made, while they live, including those that it gave back
  uint64_t allocating = 0;           // arenas that are being populated for it
  std::deque<RangeOfArena> returned;
  // Shares that it published with an event, until the fence is done and no session that received the event has a lease.
  std::map<ShareId, Share*> fenced;
  std::map<ShareId, Share*> forwarded;  // shares that it made in ranges of others (tables/forwards.h)
  Tickets tickets;
  std::map<uint64_t, std::shared_ptr<Claim>> claims;
  std::vector<Namespace*> hazard_pages_in;  // namespaces in which it has a hazard page
  Pins pinned;                              // in all of these, as of the last look at each
  std::shared_ptr<SessionQueue> queue;      // null until the session opens one
  std::map<ChannelEndId, ChannelEnd> ends;  // open ends of channels
  std::set<std::string> watches;            // shared namespaces that its watches cover
  bool awaited = false;                     // its client, which speaks gRPC, has not come back to this daemon
  uint32_t record = 0;                      // in the journal, as the records of its leases and its queue
  struct RecordedLease {
    uint32_t record = 0;
    uint64_t request = 0;
    ChannelEndId receiver{};  // the end of a channel that received the share
  };
  std::unordered_map<LeaseId, RecordedLease> lease_records;
  struct Published {
    uint64_t request = 0;
    std::shared_ptr<const ShareFacts> facts;
    Immutability immutability{};
  };
  // Its shares that the previous daemon published, in the order of their requests, until the session has resumed.
  std::vector<Published> published;
  std::optional<PublishedShare> FindPublished(uint64_t request) const;
  uint32_t queue_record = 0;
  // Of an ended session that is not cleared yet: the time of its end, and the progress in the first of its arenas.
  Clock::time_point ended;
  RangeOfArena clearing;
};

inline std::optional<PublishedShare> Session::FindPublished(uint64_t request) const {
  const auto found = std::ranges::lower_bound(published, request, {}, &Published::request);
  if (found == published.end() || found->request != request) return std::nullopt;
  return PublishedShare{found->facts->id, found->facts->name, found->facts->generation, found->immutability, {}};
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// A Share is a published, immutable, named range of an arena. It loses its name when it is withdrawn or replaced, and
// exists while a session leases or holds it. A share that was sent into a channel never has a name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/snapshot.h"
#include "daemon/broker/objects/history.h"
#include "daemon/broker/objects/tiers/stored.h"
#include "daemon/memory/shared_pages/catalogue.h"
#include "proto/boundary/fence.h"

namespace arraybridge::daemon {

class Arena;
class Namespace;
class KeptRanges;
struct Account;
struct Session;

struct Share {
  std::shared_ptr<const ShareFacts> facts;
  Namespace* ns = nullptr;  // outlives it
  Arena* arena = nullptr;   // outlives it
  uint64_t offset = 0;
  uint64_t size = 0;
  SessionId maker{};
  uint32_t maker_uid = 0;
  uint64_t maker_process_id = 0;
  std::shared_ptr<const std::string> maker_client;  // the maker's name for itself
  std::string note;                                 // the maker's note on how the bytes came
  std::chrono::steady_clock::time_point born;
  uint64_t leases = 0;
  struct Reader {
    Account* account = nullptr;  // lives as long as its leases
    uint64_t leases = 0;
  };
  std::vector<Reader> readers;   // the users, other than the maker, that lease it
  uint64_t queued = 0;           // in a channel, and not received yet
  ChannelId channel{};           // the channel that it was sent into; it has no name then
  ChannelEndId sent_by{};        // the sender's end
  Fence fence;                   // until it is done, only sessions that can wait for it get a lease
  uint64_t awaiting = 0;         // leases, of these, that were granted before the fence was done
  Session* fenced_by = nullptr;  // the maker, while `fenced` of that session has the share
  // A forward (forwards.h) uses bytes of its root, or of an entry of a direct channel: it is a root itself then.
  Share* root = nullptr;                // outlives it
  std::shared_ptr<KeptRanges> kept_in;  // has the entry's range
  uint64_t kept_bit = 0;                // the entry's return bit
  Session* forwarded_by = nullptr;      // the maker, while `forwarded` of that session has the share
  uint64_t forwards = 0;                // shares of which this one is the root
  uint64_t own_bytes = 0;               // that no other share has: 0 for a forward, whose bytes belong to its root
  uint64_t names = 0;                   // that itself and its forwards have
  uint64_t places = 0;                  // in channels, that itself and its forwards have
  bool withdrawn = false;
  bool unread = false;                  // counts in Shares::unread
  std::optional<CatalogueEntry> entry;  // its place in the catalogue
  bool retired = false;                 // its catalogue entry is retired
  std::unique_ptr<History> history;     // null: never read by a call
  std::unique_ptr<Stored> stored;       // its file; null: it never had one
  Rank rank;                            // of its bytes
  // Set when the maker of an unnamed share is gone. After that time the share is withdrawn as soon as it has no lease.
  std::optional<std::chrono::steady_clock::time_point> orphan_until;
  uint64_t request = 0;  // the maker's request that published it; 0: unknown
  uint32_t record = 0;   // in the journal
  bool unnoted = false;  // it has lost its name, or was received, and the record says otherwise
  std::optional<std::chrono::steady_clock::time_point> expires;  // when its lifetime ends, if it has one
};

// Its range belongs to another share, or to the sender of an entry.
inline bool IsForward(const Share& share) { return share.root != nullptr || share.kept_in != nullptr; }

// The bytes that count in limits.object_bytes_per_uid of its user, beside those of a share.
inline uint64_t DescriptionBytes(const Share& share) {
  return share.facts->description.size() + share.note.size() + (share.history == nullptr ? 0 : share.history->bytes());
}

}  // namespace arraybridge::daemon

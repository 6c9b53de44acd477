// A Share is a published, immutable, named range of an arena. It loses its name when it is withdrawn or replaced and
// lives on while somebody leases or holds it. One that was sent into a channel never had a name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "daemon/broker/ids.h"
#include "daemon/broker/shares/history.h"
#include "daemon/broker/snapshot.h"
#include "daemon/memory/catalogue.h"
#include "proto/boundary/fence.h"

namespace arraybridge {

class Arena;
class Namespace;
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
  std::shared_ptr<const std::string> maker_client;  // as it called itself
  std::string note;                                 // what its maker said of how the bytes came
  std::chrono::steady_clock::time_point born;
  uint64_t leases = 0;
  uint64_t queued = 0;           // in a channel: nobody has received it yet
  ChannelId channel{};           // in which it was sent; it has no name then
  Fence fence;                   // until it is done only who can wait for it gets a lease
  uint64_t awaiting = 0;         // leases, of these, that were granted before it was done
  Session* fenced_by = nullptr;  // its maker, as long as that has it among its fenced ones
  bool withdrawn = false;
  std::optional<CatalogueEntry> entry;  // where it is found without a call
  bool retired = false;                 // its entry finds it no more
  std::unique_ptr<History> history;     // null: nobody has read it by a call
  // Set when the maker of an unnamed share is gone: from then on it is withdrawn as soon as nobody leases it.
  std::optional<std::chrono::steady_clock::time_point> orphan_until;
  // When it loses its name, if it has one and its namespace or its maker set an end.
  std::optional<std::chrono::steady_clock::time_point> expires;
};

// What its user's limits.description_bytes_per_uid pays for.
inline uint64_t DescriptionBytes(const Share& share) {
  const uint64_t history = share.history == nullptr ? 0 : share.history->bytes();
  return share.facts->description.size() + share.note.size() + history;
}

}  // namespace arraybridge

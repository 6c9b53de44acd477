// A Share is a published, immutable, named range of an arena. It loses its name when it is withdrawn or replaced and
// lives on while somebody leases it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "daemon/broker/ids.h"
#include "daemon/broker/snapshot.h"

namespace arraybridge {

class Arena;
class Namespace;

struct Share {
  std::shared_ptr<const ShareFacts> facts;
  Namespace* ns = nullptr;  // outlives it
  Arena* arena = nullptr;   // outlives it
  uint64_t offset = 0;
  uint64_t size = 0;
  SessionId maker{};
  uint64_t maker_process_id = 0;
  std::chrono::steady_clock::time_point born;
  uint64_t leases = 0;
  bool withdrawn = false;
  // Set when the maker of an unnamed share is gone: from then on it is withdrawn as soon as nobody leases it.
  std::optional<std::chrono::steady_clock::time_point> orphan_until;
};

// The one place that says whether the bytes of a share may be used for something else.
inline bool MayBeReused(const Share& share) { return share.withdrawn && share.leases == 0; }

}  // namespace arraybridge

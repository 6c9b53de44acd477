// A Holding is how a Namespace is read without calls: its catalogue, the pages in which sessions hold what they found
// there, and the withdrawn shares whose bytes wait until nobody holds them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "daemon/broker/ids.h"
#include "daemon/memory/catalogue.h"
#include "daemon/memory/holds.h"
#include "proto/boundary/handle.h"

namespace arraybridge {

struct Session;
struct Share;

// What one session alone keeps from being used again, by device: each has its own capacity.
struct PinnedBytes {
  Device device;
  uint64_t bytes = 0;
};
using Pins = std::unordered_map<Session*, std::vector<PinnedBytes>>;

class Holding {
 public:
  struct Page {
    Session* session = nullptr;
    std::shared_ptr<HoldsPage> holds;
    const holds::Page* words = nullptr;  // its own, at hand for who looks at all of them
  };

  // Null until somebody asked for it.
  std::shared_ptr<Catalogue> catalogue;

  const std::vector<Page>& pages() const { return pages_; }
  std::shared_ptr<HoldsPage> PageOf(const Session& session) const;  // null: none
  // REQUIRES: it has none yet.
  void Add(Session& session, std::shared_ptr<HoldsPage> page);
  void Drop(const Session& session);

  // The share is found without a call from now on, if there is a catalogue and room in it.
  void Enter(Share& share);
  // No new hold is taken on it. Idempotent.
  void Retire(Share& share);
  // Its record may be written again. REQUIRES: retired, and not held.
  void Free(Share& share);
  bool IsHeld(const Share& share) const;

  // Withdrawn, without leases, and held when somebody looked last.
  std::unordered_set<Share*> waiting;
  // Those that nobody holds any more. `pins` gets the bytes of the others.
  std::vector<Share*> Look(Pins& pins) const;

 private:
  std::vector<Page> pages_;
};

}  // namespace arraybridge

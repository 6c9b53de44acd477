// A Holding is how a Namespace is read without calls: its catalogue, the hazard pages in which sessions hold what they
// found there, and the shares that wait until no session holds them: withdrawn ones, whose bytes may be used again
// then, and orphans whose grace has ended, which lose their names then.
//
// A look takes a round through the pages for all shares that wait, in slices: a session that held a share when it was
// retired holds it until it ends that hold, and no session can hold it anew, so pages may be looked at one after
// another while others work. Of what is retired after a pass began that pass proves nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/broker/ids.h"
#include "daemon/broker/quota/look_budget.h"
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
using Pins = std::vector<PinnedBytes>;
void AddPinned(Pins& pins, const Device& device, uint64_t bytes);

class Holding {
 public:
  struct Page {
    Session* session = nullptr;
    std::shared_ptr<HoldsPage> holds;
    const holds::Page* words = nullptr;  // its own, at hand for who looks at all of them
    Pins counting;                       // withdrawn shares seen there in this round
    Pins pinned;                         // in the last round; its session's Pins have them
  };

  // Null until somebody asked for it.
  std::shared_ptr<Catalogue> catalogue;
  // What looks through the pages cost. Null in tests of other things: no bound.
  std::shared_ptr<LookBudget> budget;

  std::vector<Page>& pages() { return pages_; }
  const std::vector<Page>& pages() const { return pages_; }
  std::shared_ptr<HoldsPage> PageOf(const Session& session) const;  // null: none
  // REQUIRES: it has none yet.
  void Add(Session& session, std::shared_ptr<HoldsPage> page);
  // The page is the caller's. REQUIRES: it has one.
  Page Drop(const Session& session);

  // The share is found without a call from now on, if there is a catalogue and room in it.
  void Insert(Share& share);
  // No new hold is taken on it. Idempotent.
  void Retire(Share& share);
  // Its record may be written again. REQUIRES: retired, and not held.
  void Free(Share& share);
  // Looks into every page, if the budget has something left. False: it is held, or nobody knows.
  bool IsKnownUnheld(const Share& share) const;

  // The share waits for its holds to end; the pass that is being made proves nothing of it.
  void Await(Share& share);
  // False: it did not wait.
  bool Unwait(const Share& share);
  bool waits() const { return !waiting_.empty(); }
  // Of withdrawn shares that wait.
  uint64_t pinned_bytes() const { return pinned_bytes_; }

  struct Slice {
    std::vector<Share*> unheld;  // they wait no more: each is the caller's to go on with
    uint64_t cost_ns = 0;
    bool round_ended = false;  // every share that waited when the round began was looked for in all pages
  };
  // Goes on with the round, or begins one, until it has cost about so much.
  Slice Look(uint64_t cost_max_ns);
  // During the round something changed that it may have missed.
  bool again = false;

 private:
  struct Sought {
    Share* share = nullptr;
    const HoldsPage* seen_in = nullptr;  // charged once a page, however often it stands there
  };
  struct Wait {
    Share* share = nullptr;
    uint64_t pinned = 0;  // bytes, if it is withdrawn
  };

  uint64_t Gather();
  uint64_t LookInto(Page& page);

  std::vector<Page> pages_;
  std::map<ShareId, Wait> waiting_;
  uint64_t pinned_bytes_ = 0;

  // The round: passes through the pages, each for the next few thousand of those that waited when it began.
  enum class Stage { kNone, kGathers, kLooks, kTells };
  Stage stage_ = Stage::kNone;
  ShareId gathered_{};                           // the last that a pass of the round looked for
  ShareId last_{};                               // of the round
  std::unordered_map<uint64_t, Sought> sought_;  // in this pass, by hold
  size_t next_page_ = 0;
};

}  // namespace arraybridge

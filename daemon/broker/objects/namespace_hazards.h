// SPDX-License-Identifier: Apache-2.0
// A NamespaceHazards serves reading without calls in one Namespace. It has the catalogue, the hazard pages of the
// sessions, and the shares that wait until no hazard slot names them. Then the bytes of withdrawn shares may be reused,
// and orphans whose grace has ended lose their names.
//
// A look goes through all pages for all waiting shares, in rounds and slices. A session that held a share when the
// share was retired holds it until it clears the slot, and no session can newly hold it. So the pages may be looked at
// one after another while sessions work. A pass proves nothing about shares that were retired after it began.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/look_budget.h"
#include "daemon/memory/shared_pages/catalogue.h"
#include "daemon/memory/shared_pages/hazard_page.h"
#include "proto/boundary/handle.h"

namespace arraybridge::daemon {

struct Session;
struct Share;

// Bytes that one session alone keeps from reuse, by device, because each device has its own capacity.
struct PinnedBytes {
  Device device;
  uint64_t bytes = 0;
};
using Pins = std::vector<PinnedBytes>;
void AddPinned(Pins& pins, const Device& device, uint64_t bytes);

class NamespaceHazards {
 public:
  struct Page {
    Session* session = nullptr;
    std::shared_ptr<HazardPage> page;
    const hazard::Page* words = nullptr;  // of `page`, for quick access
    Pins counting;                        // withdrawn shares seen in this page during this round
    Pins pinned;                          // counted in the last round; included in the session's Pins
    uint32_t record = 0;                  // in the journal
  };

  // Null until a session asks for it.
  std::shared_ptr<Catalogue> catalogue;
  uint32_t catalogue_record = 0;  // in the journal
  // The budget for looks. Null: no bound (for tests).
  std::shared_ptr<LookBudget> budget;

  std::vector<Page>& pages() { return pages_; }
  const std::vector<Page>& pages() const { return pages_; }
  std::shared_ptr<HazardPage> PageOf(const Session& session) const;  // null: none
  // REQUIRES: the session has none yet.
  void Add(Session& session, std::shared_ptr<HazardPage> page, uint32_t record = 0);
  // Gives the page to the caller. REQUIRES: the session has one.
  Page Drop(const Session& session);

  // From now on the share is found without a call, if there is a catalogue with room.
  void Insert(Share& share);
  // The record of the share in a catalogue that the previous daemon wrote. False: the record says something else.
  bool Restore(Share& share, const Catalogue::Used& used) const;
  // From now on no session can hold it anew. Idempotent.
  void Retire(Share& share);
  // Its catalogue record may be written again. REQUIRES: retired, and not held.
  void Free(Share& share);
  // Looks into every page if the budget allows it. False: the share is held, or the look was not made.
  bool IsKnownUnheld(const Share& share) const;

  // A slot of this session names the share.
  bool IsHeldBy(const Session& session, const Share& share) const;

  // The share waits until no slot names it. The current pass proves nothing about it.
  void Await(Share& share);
  // False: the share did not wait.
  bool Unwait(const Share& share);
  bool waits() const { return !waiting_.empty(); }
  // Of waiting withdrawn shares.
  uint64_t pinned_bytes() const { return pinned_bytes_; }

  struct Slice {
    std::vector<Share*> unheld;  // they wait no longer; the caller decides what happens next
    uint64_t cost_ns = 0;
    bool round_ended = false;  // every share that waited when the round began was looked for in all pages
  };
  // Continues the round, or begins one, until the cost is about `cost_max_ns`.
  Slice Look(uint64_t cost_max_ns);
  // Something changed during the round that it may have missed.
  bool again = false;

 private:
  struct Sought {
    Share* share = nullptr;
    const HazardPage* seen_in = nullptr;  // counts once per page, however often the share is in it
  };
  struct Wait {
    Share* share = nullptr;
    uint64_t pinned = 0;  // bytes, if the share is withdrawn
  };

  uint64_t Gather();
  uint64_t LookInto(Page& page);

  std::vector<Page> pages_;
  std::map<ShareId, Wait> waiting_;
  uint64_t pinned_bytes_ = 0;

  // A round makes passes through the pages, each for the next kSoughtMax of the shares that waited when it began.
  enum class Stage { kNone, kGathers, kLooks, kTells };
  Stage stage_ = Stage::kNone;
  ShareId gathered_{};                           // the last share that a pass of the round looked for
  ShareId last_{};                               // the last share of the round
  std::unordered_map<uint64_t, Sought> sought_;  // in this pass, by the content of a slot
  size_t next_page_ = 0;
};

}  // namespace arraybridge::daemon

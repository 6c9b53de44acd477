#include "daemon/broker/holding.h"

#include <algorithm>
#include <utility>

#include "daemon/broker/arena.h"
#include "daemon/broker/share.h"

namespace arraybridge {
namespace {

void NotePinned(std::vector<PinnedBytes>& pinned, const Share& share) {
  const Device& device = share.arena->device();
  const auto found = std::ranges::find(pinned, device, &PinnedBytes::device);
  if (found != pinned.end()) {
    found->bytes += share.size;
  } else {
    pinned.push_back({device, share.size});
  }
}

}  // namespace

std::shared_ptr<HoldsPage> Holding::PageOf(const Session& session) const {
  const auto found = std::ranges::find(pages_, &session, &Page::session);
  return found == pages_.end() ? nullptr : found->holds;
}

void Holding::Add(Session& session, std::shared_ptr<HoldsPage> page) {
  const holds::Page* const words = &page->page();
  pages_.push_back({&session, std::move(page), words});
}

void Holding::Drop(const Session& session) {
  std::erase_if(pages_, [&](const Page& page) { return page.session == &session; });
}

void Holding::Enter(Share& share) {
  if (catalogue == nullptr || share.entry.has_value() || share.withdrawn || !share.fence.done()) return;
  const ShareFacts& facts = *share.facts;
  share.entry = catalogue->Put({.name = facts.name,
                                .arena = Number(share.arena->id()),
                                .offset = share.offset,
                                .size = share.size,
                                .share = Number(facts.id),
                                .generation = facts.generation,
                                .enforced = share.arena->immutability == Immutability::kEnforced,
                                .unnamed = facts.unnamed,
                                .description = facts.description});
}

void Holding::Retire(Share& share) {
  if (!share.entry.has_value() || share.retired) return;
  catalogue->Retire(*share.entry);
  share.retired = true;
}

void Holding::Free(Share& share) {
  if (!share.entry.has_value()) return;
  catalogue->Free(*share.entry);
  share.entry.reset();
}

bool Holding::IsHeld(const Share& share) const {
  if (!share.entry.has_value()) return false;
  const uint64_t hold = share.entry->hold();
  return std::ranges::any_of(pages_, [hold](const Page& page) { return holds::Has(*page.words, hold); });
}

// One pass over the pages, however many wait: what is looked up is ours, and nobody's word makes it longer.
std::vector<Share*> Holding::Look(Pins& pins) const {
  struct Wait {
    Share* share = nullptr;
    const HoldsPage* seen_in = nullptr;  // charged once a page, however often it stands there
  };
  std::unordered_map<uint64_t, Wait> waits;
  waits.reserve(waiting.size());
  for (Share* const share : waiting) waits.emplace(share->entry->hold(), Wait{share, nullptr});
  for (const Page& page : pages_) {
    page.holds->ForEach([&](uint64_t hold) {
      const auto found = waits.find(hold);
      if (found == waits.end() || found->second.seen_in == page.holds.get()) return;
      found->second.seen_in = page.holds.get();
      NotePinned(pins[page.session], *found->second.share);
    });
  }
  std::vector<Share*> free;
  for (const auto& [hold, wait] : waits) {
    if (wait.seen_in == nullptr) free.push_back(wait.share);
  }
  return free;
}

}  // namespace arraybridge

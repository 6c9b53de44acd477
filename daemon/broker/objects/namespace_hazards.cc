// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/namespace_hazards.h"

#include <algorithm>
#include <utility>

#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kSoughtMax = 2048;  // shares in one pass

// Estimated costs on a processor of 3 GHz.
constexpr uint64_t kPageNs = 20;
constexpr uint64_t kWordsPerNs = 2;  // words of a page compared per nanosecond
constexpr uint64_t kSeekNs = 60;     // inserting a share into a pass
constexpr uint64_t kFindNs = 10;     // looking up a hazard slot in a pass
constexpr uint64_t kTellNs = 1000;   // reporting one share, and its handling by the caller

uint64_t HighOf(const hazard::Page& page) {
  return std::min(Load(page.high, std::memory_order_relaxed), hazard::kWords);
}

CatalogueRow RowOf(const Share& share) {
  const ShareFacts& facts = *share.facts;
  return {.name = facts.name,
          .arena = Number(share.arena->id()),
          .offset = share.offset,
          .size = share.size,
          .share = Number(facts.id),
          .generation = facts.generation,
          .enforced = share.arena->immutability == Immutability::kEnforced,
          .unnamed = facts.unnamed,
          .description = facts.description};
}

}  // namespace

void AddPinned(Pins& pins, const Device& device, uint64_t bytes) {
  const auto found = std::ranges::find(pins, device, &PinnedBytes::device);
  if (found != pins.end()) {
    found->bytes += bytes;
  } else {
    pins.push_back({device, bytes});
  }
}

std::shared_ptr<HazardPage> NamespaceHazards::PageOf(const Session& session) const {
  const auto found = std::ranges::find(pages_, &session, &Page::session);
  return found == pages_.end() ? nullptr : found->page;
}

void NamespaceHazards::Add(Session& session, std::shared_ptr<HazardPage> page, uint32_t record) {
  const hazard::Page* const words = &page->page();
  pages_.push_back({&session, std::move(page), words, {}, {}, record});
}

// The last page takes the place of the dropped one, but an unseen page must not take the place of a seen one.
NamespaceHazards::Page NamespaceHazards::Drop(const Session& session) {
  auto at = std::ranges::find(pages_, &session, &Page::session);
  AB_CHECK(at != pages_.end());
  Page dropped = std::move(*at);
  const auto next = pages_.begin() + static_cast<std::ptrdiff_t>(std::min(next_page_, pages_.size()));
  if (at < next) {
    const auto last_looked_at = std::prev(next);
    if (at != last_looked_at) *at = std::move(*last_looked_at);
    at = last_looked_at;
    --next_page_;
  }
  if (at != std::prev(pages_.end())) *at = std::move(pages_.back());
  pages_.pop_back();
  return dropped;
}

void NamespaceHazards::Insert(Share& share) {
  if (catalogue == nullptr || share.entry.has_value() || share.withdrawn || !share.fence.done()) return;
  share.entry = catalogue->Put(RowOf(share));
}

bool NamespaceHazards::Restore(Share& share, const Catalogue::Used& used) const {
  if (!catalogue->Says(used.entry, RowOf(share))) return false;
  if (!used.live && !share.withdrawn) return false;  // its next record is live
  share.entry = used.entry;
  share.retired = !used.live;
  if (used.live && share.withdrawn) {
    catalogue->Retire(used.entry);
    share.retired = true;
  }
  return true;
}

void NamespaceHazards::Retire(Share& share) {
  if (!share.entry.has_value() || share.retired) return;
  catalogue->Retire(*share.entry);
  share.retired = true;
}

void NamespaceHazards::Free(Share& share) {
  if (!share.entry.has_value()) return;
  catalogue->Free(*share.entry);
  share.entry.reset();
}

bool NamespaceHazards::IsKnownUnheld(const Share& share) const {
  if (!share.entry.has_value() || pages_.empty()) return true;
  if (budget != nullptr && !budget->has_some()) return false;
  const uint64_t word = share.entry->hazard_word();
  uint64_t cost_ns = 0;
  const bool held = std::ranges::any_of(pages_, [&](const Page& page) {
    cost_ns += kPageNs + HighOf(*page.words) / kWordsPerNs;
    return hazard::Has(*page.words, word);
  });
  if (budget != nullptr) budget->Spend(cost_ns);
  return !held;
}

bool NamespaceHazards::IsHeldBy(const Session& session, const Share& share) const {
  const auto page = std::ranges::find(pages_, &session, &Page::session);
  return share.entry.has_value() && page != pages_.end() && hazard::Has(*page->words, share.entry->hazard_word());
}

void NamespaceHazards::Await(Share& share) {
  Wait& wait = waiting_[share.facts->id];
  wait.share = &share;
  pinned_bytes_ -= std::exchange(wait.pinned, share.withdrawn ? share.size : 0);
  pinned_bytes_ += wait.pinned;
  sought_.erase(share.entry->hazard_word());
}

bool NamespaceHazards::Unwait(const Share& share) {
  const auto found = waiting_.find(share.facts->id);
  if (found == waiting_.end()) return false;
  pinned_bytes_ -= found->second.pinned;
  waiting_.erase(found);
  sought_.erase(share.entry->hazard_word());
  return true;
}

// Collects the next shares of the round. Returns the cost.
uint64_t NamespaceHazards::Gather() {
  auto next = waiting_.upper_bound(gathered_);
  while (next != waiting_.end() && next->first <= last_ && sought_.size() < kSoughtMax) {
    sought_.emplace(next->second.share->entry->hazard_word(), Sought{next->second.share, nullptr});
    gathered_ = (next++)->first;
  }
  next_page_ = 0;
  return sought_.size() * kSeekNs;
}

// The content of each hazard slot is compared, never used as an index or a length.
uint64_t NamespaceHazards::LookInto(Page& page) {
  uint64_t slots = 0;
  page.page->ForEach([&](uint64_t word) {
    ++slots;
    const auto found = sought_.find(word);
    if (found == sought_.end() || found->second.seen_in == page.page.get()) return;
    found->second.seen_in = page.page.get();
    const Share& share = *found->second.share;
    if (share.withdrawn) AddPinned(page.counting, share.arena->device(), share.size);
  });
  return kPageNs + HighOf(*page.words) / kWordsPerNs + slots * kFindNs;
}

NamespaceHazards::Slice NamespaceHazards::Look(uint64_t cost_max_ns) {
  Slice slice;
  while (slice.cost_ns < cost_max_ns && !slice.round_ended) {
    if (stage_ == Stage::kNone) {
      last_ = waiting_.empty() ? ShareId{} : waiting_.rbegin()->first;
      gathered_ = {};
      again = false;
      stage_ = Stage::kGathers;
    }
    if (stage_ == Stage::kGathers) {
      slice.cost_ns += Gather();
      slice.round_ended = sought_.empty();
      stage_ = slice.round_ended ? Stage::kNone : Stage::kLooks;
    } else if (stage_ == Stage::kLooks) {
      if (next_page_ < pages_.size()) {
        slice.cost_ns += LookInto(pages_[next_page_++]);
      } else {
        stage_ = Stage::kTells;
      }
    } else if (sought_.empty()) {
      stage_ = Stage::kGathers;
    } else {
      const auto first = sought_.begin();
      const Sought sought = first->second;
      if (sought.seen_in == nullptr) slice.unheld.push_back(sought.share);
      slice.cost_ns += sought.seen_in == nullptr ? kTellNs : kFindNs;
      sought_.erase(first);
    }
  }
  return slice;
}

}  // namespace arraybridge::daemon

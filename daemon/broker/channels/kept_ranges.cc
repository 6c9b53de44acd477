// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/channels/kept_ranges.h"

#include <algorithm>
#include <utility>

#include "daemon/broker/channels/direct_channel_record.h"

namespace arraybridge {
namespace {

Status GoByCalls(std::string_view why) {
  return FailedPrecondition("entries of this direct channel cannot be forwarded: ", why).Because("NOT_FORWARDED");
}

}  // namespace

void KeptRanges::ReleaseSourcesIfUnused() {
  if (pages_ != nullptr || in_use()) return;
  const auto sources = std::exchange(sources_, {});
  if (!std::exchange(orphan_, false)) return;
  for (const auto& source : sources) {
    if (--source->orphans_ > 0) continue;
    source->Keep();
    source->ReleaseSourcesIfUnused();
  }
}

void KeptRanges::DropPages() {
  pages_ = nullptr;
  ReleaseSourcesIfUnused();
}

bool KeptRanges::ComesFrom(const KeptRanges& other) const {
  return this == &other || std::ranges::any_of(sources_, [&](const auto& each) { return each->ComesFrom(other); });
}

bool KeptRanges::MissesReceiver() const {
  return std::ranges::any_of(sources_,
                             [](const auto& each) { return each->pages_ != nullptr && each->pages_->gone(); });
}

void KeptRanges::Keep() {
  if (pages_ == nullptr) return;
  for (uint64_t bit = 0; bit < direct_channel::kReturnBits; ++bit) {
    pages_->Keep(bit, orphans_ > 0 || RootOf(bit) != nullptr);
  }
}

void KeptRanges::AddRoot(uint64_t bit, Share* root) {
  roots_.emplace(bit, root);
  pages_->Keep(bit, true);
}

void KeptRanges::RemoveRoot(uint64_t bit, Share* root) {
  roots_.erase({bit, root});
  if (pages_ != nullptr && orphans_ == 0 && RootOf(bit) == nullptr) pages_->Keep(bit, false);
  ReleaseSourcesIfUnused();
}

bool KeptRanges::HasOtherRoot(uint64_t bit, const Share& root) const {
  auto at = roots_.lower_bound({bit, nullptr});
  if (at != roots_.end() && at->second == &root) ++at;
  return at != roots_.end() && at->first == bit;
}

Share* KeptRanges::RootOf(uint64_t bit) const {
  const auto first = roots_.lower_bound({bit, nullptr});
  return first != roots_.end() && first->first == bit ? first->second : nullptr;
}

// Ranks grow along the way of an entry, so that no entry comes to the same direct channel twice.
Status KeptRanges::Link(const std::shared_ptr<DirectChannelRecord>& into, const std::shared_ptr<KeptRanges>& source) {
  KeptRanges& its = *into->kept;
  if (std::ranges::find(its.sources_, source) != its.sources_.end()) return Ok();
  std::erase_if(its.sources_, [](const auto& each) { return each->pages_ == nullptr && !each->in_use(); });
  if (source->ComesFrom(its)) return GoByCalls("they have passed through it");
  if (its.sources_.size() >= kSourcesMost) return GoByCalls("too many others are forwarded there");
  if (source->rank_ + 1 >= kRankMost) return GoByCalls("they have passed through too many");
  if (its.rank_ <= source->rank_) {
    const auto stands = [](const Onward& each) { return !each.kept.expired(); };
    if (std::ranges::any_of(its.forwarded_, stands)) return GoByCalls("its own entries are forwarded already");
    its.rank_ = source->rank_ + 1;
  }
  std::erase_if(source->forwarded_, [](const Onward& each) { return each.kept.expired(); });
  source->forwarded_.push_back({into, into->kept});
  its.sources_.push_back(source);
  return Ok();
}

void KeptRanges::RestoreLink(const std::shared_ptr<DirectChannelRecord>& into,
                             const std::shared_ptr<KeptRanges>& source) {
  KeptRanges& its = *into->kept;
  if (source->ComesFrom(its)) return;
  its.rank_ = std::max(its.rank_, source->rank_ + 1);
  if (std::ranges::find(its.sources_, source) != its.sources_.end()) return;
  source->forwarded_.push_back({into, into->kept});
  its.sources_.push_back(source);
}

std::vector<uint64_t> KeptRanges::sources() const {
  std::vector<uint64_t> numbers;
  for (const auto& each : sources_) {
    if (each->pages_ != nullptr) numbers.push_back(each->pages_->number());
  }
  return numbers;
}

bool KeptRanges::MayComeFrom(SessionId session) const {
  // Nothing is left of a source whose sender has forgotten it.
  const auto may = [&](const auto& each) { return each->pages_ != nullptr && each->MayComeFrom(session); };
  return sender_ == session || std::ranges::any_of(sources_, may);
}

void KeptRanges::AddForwarded(std::vector<std::shared_ptr<DirectChannelRecord>>& all) const {
  for (const Onward& each : forwarded_) {
    auto record = each.record.lock();
    if (record == nullptr || std::ranges::find(all, record) != all.end()) continue;
    const KeptRanges* const kept = record->kept.get();
    all.push_back(std::move(record));
    if (kept != nullptr) kept->AddForwarded(all);
  }
}

void KeptRanges::Orphan() {
  if (orphan_ || sources_.empty()) return;
  orphan_ = true;
  for (const auto& source : sources_) {
    if (source->orphans_++ == 0) source->Keep();
  }
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/tiers/upkeep.h"

#include <vector>

namespace arraybridge::daemon {
namespace {

constexpr int kKeptAtOnce = 16;  // shares, before requests for a move have their turn

// The disk may have room, or work, again later. Other refusals are the share's own.
bool MayBeKeptLater(const Status& refusal) {
  return refusal.code() == Code::kUnavailable || refusal.code() == Code::kResourceExhausted;
}

}  // namespace

bool Upkeep::Keep(CountedMover& mover) {
  if (terms_.durable.empty() || !mover.directory().off().empty()) return false;
  int kept = 0;
  for (const Tiers::NamespacePlace& each : tiers_.Named(terms_.durable)) {
    ShareId& last = kept_[each];
    bool is_all = false;
    for (const SharePlace& place : tiers_.NotDurable({each.first, each.second}, last, &is_all)) {
      if (kept++ == kKeptAtOnce) return true;
      if (MayBeKeptLater(mover.Keep(place))) return false;
      last = place.share;
    }
    if (!is_all) return true;
  }
  return false;
}

void Upkeep::MakeRoom(Rooms& rooms, CountedMover& mover, const std::function<void()>& freed) {
  const auto now = std::chrono::steady_clock::now();
  if (terms_.high == 0 || now < next_look_ || !mover.directory().off().empty()) return;
  const auto [used, capacity] = tiers_.HostUse();
  const auto part = [capacity = capacity](uint32_t percent) { return capacity / 100 * percent; };
  if (capacity == 0 || used <= part(terms_.high)) return;
  rooms.Level(mover, used - part(terms_.until()), freed);
  next_look_ = now + settle_;
}

}  // namespace arraybridge::daemon

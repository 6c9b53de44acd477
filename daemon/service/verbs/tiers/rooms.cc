// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/tiers/rooms.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <optional>

namespace arraybridge::daemon {
namespace {

// The lowest rank first; then the share that no call has read for the longest time. Times of which one is less than
// twice the other count as alike; of those the larger share leaves first, because it takes one file to make as much
// room.
bool LeavesFirst(const Tiers::Candidate& one, const Tiers::Candidate& other, Clock::time_point now) {
  if (one.rank != other.rank) return one.rank < other.rank;
  const auto idle = [now](const Tiers::Candidate& each) {
    return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(0, (now - each.read) / std::chrono::seconds(1))));
  };
  if (idle(one) != idle(other)) return idle(one) > idle(other);
  if (one.bytes != other.bytes) return one.bytes > other.bytes;
  return one.read < other.read;
}

struct Room {
  uint64_t bytes = 0;
  std::vector<Tiers::Candidate> victims;  // the last one is next
  uint64_t moved = 0;

  bool is_done() const { return moved >= bytes || victims.empty(); }
  // Returns the bytes that have left memory.
  uint64_t MoveOne(CountedMover& mover) {
    const Tiers::Candidate next = std::move(victims.back());
    victims.pop_back();
    if (!mover.MoveOut(next.place).ok()) return 0;
    moved += next.bytes;
    return next.bytes;
  }
};

uint64_t BytesOf(const std::vector<Tiers::Candidate>& victims) {
  uint64_t bytes = 0;
  for (const Tiers::Candidate& each : victims) bytes += each.bytes;
  return bytes;
}

}  // namespace

void Rooms::Want(uint32_t owner, std::string_view ns, uint64_t bytes, const Status& refusal) {
  if (refusal.reason() != "DEVICE_FULL" && refusal.reason() != "QUOTA_EXCEEDED") return;
  const bool of_namespace = refusal.reason() == "QUOTA_EXCEEDED";
  const MutexLock lock(mutex_);
  uint64_t& wanted = wanted_[{owner, of_namespace ? std::string(ns) : std::string()}];
  wanted = std::max(wanted, bytes);
}

std::vector<Tiers::Candidate> Rooms::VictimsOf(const NamespaceKey& of) const {
  std::vector<Tiers::Candidate> all;
  std::optional<SharePlace> after;
  do {
    auto some = tiers_.Candidates(of, &after);
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  } while (after);
  std::ranges::sort(all,
                    [now = Clock::now()](const auto& one, const auto& other) { return LeavesFirst(other, one, now); });
  return all;
}

void Rooms::Serve(CountedMover& mover, const std::function<void()>& freed) {
  std::map<std::pair<uint32_t, std::string>, uint64_t> wanted;
  {
    const MutexLock lock(mutex_);
    wanted.swap(wanted_);
  }
  std::vector<Room> rooms;
  rooms.reserve(wanted.size());
  for (const auto& [of, bytes] : wanted) rooms.push_back({bytes, VictimsOf({of.first, of.second})});
  const auto ends = [&freed](const Room& room) {
    if (room.is_done() && room.moved > 0) freed();
    return room.is_done();
  };
  for (std::erase_if(rooms, ends); !rooms.empty(); std::erase_if(rooms, ends)) {
    for (Room& room : rooms) room.MoveOne(mover);
  }
}

void Rooms::Level(CountedMover& mover, uint64_t bytes, const std::function<void()>& freed) {
  std::vector<Room> rooms;
  for (const uint32_t owner : tiers_.Owners()) {
    auto victims = VictimsOf({owner, ""});
    const uint64_t its = BytesOf(victims);
    rooms.push_back({its, std::move(victims)});
  }
  const auto left = [](const Room& room) { return room.victims.empty() ? 0 : room.bytes - room.moved; };
  uint64_t moved = 0;
  while (moved < bytes) {
    const auto most = std::ranges::max_element(rooms, {}, left);
    if (most == rooms.end() || most->victims.empty()) break;
    moved += most->MoveOne(mover);
    const MutexLock lock(mutex_);
    if (!wanted_.empty()) break;
  }
  if (moved > 0) freed();
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/tiers/rooms.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

namespace arraybridge::daemon {
namespace {

struct Room {
  uint64_t bytes = 0;
  std::vector<Tiers::Candidate> victims;  // the last one is next
  uint64_t moved = 0;

  bool is_done() const { return moved >= bytes || victims.empty(); }
  void MoveOne(Mover& mover) {
    const Tiers::Candidate next = std::move(victims.back());
    victims.pop_back();
    if (mover.MoveOut(next.place).ok()) moved += next.bytes;
  }
};

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
  std::ranges::sort(all, std::greater(), &Tiers::Candidate::read);
  return all;
}

void Rooms::Serve(Mover& mover, const std::function<void()>& freed) {
  std::map<std::pair<uint32_t, std::string>, uint64_t> wanted;
  {
    const MutexLock lock(mutex_);
    wanted.swap(wanted_);
  }
  std::vector<Room> rooms;
  for (const auto& [of, bytes] : wanted) rooms.push_back({bytes, VictimsOf({of.first, of.second})});
  const auto ends = [&freed](const Room& room) {
    if (room.is_done() && room.moved > 0) freed();
    return room.is_done();
  };
  for (std::erase_if(rooms, ends); !rooms.empty(); std::erase_if(rooms, ends)) {
    for (Room& room : rooms) room.MoveOne(mover);
  }
}

}  // namespace arraybridge::daemon

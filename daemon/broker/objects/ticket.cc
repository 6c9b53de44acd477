// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/ticket.h"

#include <algorithm>

namespace arraybridge::daemon {
namespace {

bool SameToken(const std::array<uint8_t, 16>& ours, std::span<const uint8_t> theirs) {
  if (theirs.size() != ours.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < ours.size(); ++i) difference |= static_cast<unsigned>(ours[i] ^ theirs[i]);
  return difference == 0;
}

}  // namespace

std::optional<Ticket> Tickets::Take(std::span<const uint8_t> token, std::chrono::steady_clock::time_point now) {
  const auto found = std::ranges::find_if(
      tickets_, [&](const Ticket& ticket) { return SameToken(ticket.token, token) && ticket.deadline > now; });
  if (found == tickets_.end()) return std::nullopt;
  const Ticket taken = *found;
  tickets_.erase(found);
  return taken;
}

std::vector<Ticket> Tickets::TakeLate(std::chrono::steady_clock::time_point now) {
  std::vector<Ticket> late;
  std::erase_if(tickets_, [&](const Ticket& ticket) {
    if (ticket.deadline > now) return false;
    late.push_back(ticket);
    return true;
  });
  return late;
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/history.h"

#include <algorithm>
#include <utility>

namespace arraybridge::daemon {

std::vector<Visit>::iterator History::Find(SessionId session) {
  // Searches from the end: frequent readers read recently.
  const auto found = std::find_if(readers_.rbegin(), readers_.rend(),
                                  [session](const Visit& visit) { return visit.who.session == session; });
  return found == readers_.rend() ? readers_.end() : std::prev(found.base());
}

void History::Read(const Visitor& who, std::string_view note, uint64_t now_ns, uint64_t bytes_max) {
  const auto known = Find(who.session);
  if (known != readers_.end()) {
    std::rotate(known, known + 1, readers_.end());
  } else {
    readers_.push_back({who, {}, now_ns, now_ns, 0});
    bytes_ += readers_.back().bytes();
  }
  Visit& visit = readers_.back();
  bytes_ -= visit.note.size();
  visit.note = note;
  bytes_ += visit.note.size();
  visit.last_ns = now_ns;
  ++visit.count;
  while (bytes_ > bytes_max && !readers_.empty()) {
    bytes_ -= readers_.front().bytes();
    readers_.erase(readers_.begin());
    ++forgotten_;
  }
}

void History::Renote(SessionId session, std::string_view note, uint64_t bytes_max) {
  const auto known = Find(session);
  if (known == readers_.end() || bytes_ - known->note.size() + note.size() > bytes_max) return;
  bytes_ = bytes_ - known->note.size() + note.size();
  known->note = note;
}

}  // namespace arraybridge::daemon

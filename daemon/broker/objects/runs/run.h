// SPDX-License-Identifier: Apache-2.0
// A Run is the text by which the ends of a channel tell one start of their pipeline from another. An end may state it.
// An end that states none belongs to the run that its channel is in. Notices carry the run of the end that ended: an
// end that has stated a run is told only of ends of that run.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace arraybridge::daemon {

using Run = std::shared_ptr<const std::string>;  // null: not stated

// Null for the empty text.
Run RunOf(std::string_view text);

// "" or " of run 'monday'".
std::string OfRun(const Run& run);

// Whether an end of run `own` is told of an end of run `other`.
bool IsTold(const Run& own, const Run& other);

// Whether the channel enters the run that an end states. It stays in its run while an open end of that run is left.
template <class Members>
bool Begins(const Run& stated, const Run& current, const Members& members) {
  if (stated == nullptr || (current != nullptr && *current == *stated)) return false;
  for (const auto& each : members) {
    if (current != nullptr && each.run != nullptr && *each.run == *current) return false;
  }
  return true;
}

}  // namespace arraybridge::daemon

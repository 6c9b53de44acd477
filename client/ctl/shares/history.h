// SPDX-License-Identifier: Apache-2.0
// A History is the sessions and named shares that exist when a watch begins, each as the event that it began with. A
// broker stores no events, so the history has nothing that has already ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "client/ctl/connection.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

class History {
 public:
  // Returns the events that `watch` selects and that are at most `age` old. REQUIRES: that watch is open, so that no
  // event is missed in between.
  static Result<History> Since(std::chrono::milliseconds age, const v1::WatchRequest& watch, Connection& connection);

  // Oldest first.
  const std::vector<v1::Event>& events() const { return events_; }
  // True if the history has the event: the watch repeats the events that occurred while the history was fetched.
  bool Has(const v1::Event& event) const { return begun_.contains(BeginningOf(event)); }

 private:
  using Beginning = std::pair<v1::EventKind, uint64_t>;  // kind, and the number of the session or share
  static Beginning BeginningOf(const v1::Event& event) {
    return {event.kind(), event.kind() == v1::EVENT_KIND_PUBLISH ? event.share() : event.session()};
  }

  std::vector<v1::Event> events_;
  std::set<Beginning> begun_;
};

}  // namespace arraybridge::ctl

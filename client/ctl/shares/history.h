// The Past is what is known of the time before a watch: sessions that are open and shares that have their names, each
// as the event that it began with. A broker keeps no events, so of what has ended since nothing is known.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "client/ctl/connection.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

class Past {
 public:
  // Of what `watch` asks for, and is no older than this. REQUIRES: that watch is open, so that nothing is missed
  // between.
  static Result<Past> Since(std::chrono::milliseconds age, const v1::WatchRequest& watch, Connection& connection);

  // The oldest first.
  const std::vector<v1::Event>& events() const { return events_; }
  // The watch tells again what happened while this was asked for.
  bool Has(const v1::Event& event) const { return begun_.contains(BeginningOf(event)); }

 private:
  using Beginning = std::pair<v1::EventKind, uint64_t>;  // and the number of what began
  static Beginning BeginningOf(const v1::Event& event) {
    return {event.kind(), event.kind() == v1::EVENT_KIND_PUBLISH ? event.share() : event.session()};
  }

  std::vector<v1::Event> events_;
  std::set<Beginning> begun_;
};

}  // namespace arraybridge::ctl

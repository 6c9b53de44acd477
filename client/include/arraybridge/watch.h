// SPDX-License-Identifier: Apache-2.0
// Watch delivers events of the broker that concern this user's sessions and shares: publishes, acquires, withdrawals,
// beginning and end of sessions, refusals. A watch that is read too slowly is closed, and its reader gets the number of
// lost events.
//
//   auto watch = broker.OpenWatch({.kinds = {arraybridge::EventKind::kPublish}});
//   for (auto event = watch->Next(); event.ok(); event = watch->Next()) Show(*event);
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <arraybridge/device.h>

#include "proto/boundary/result.h"

namespace arraybridge {

enum class EventKind : uint8_t {
  kUnknown = 0,  // from a broker newer than this library
  kAllocate = 1,
  kPublish = 2,
  kAcquire = 3,  // by a call; acquires without a call cause no event
  kRelease = 4,
  kWithdraw = 5,
  kSessionBegin = 6,
  kSessionEnd = 7,
  kRefusal = 8,
  kQuota = 9,  // a refusal because of a quota or limit
};
// "publish", "session_end"; "unknown".
std::string_view NameOf(EventKind kind);

// Members that do not apply to the kind are empty or 0.
struct Event {
  uint64_t time_ns = 0;  // since 1970
  EventKind kind{};
  std::string ns;
  std::string name;  // of the share, or of the channel that the share was sent into
  uint64_t share = 0;
  uint64_t generation = 0;
  uint64_t session = 0;     // the session that caused it; 0: the broker itself
  uint64_t process_id = 0;  // of that session, for display only
  uint32_t uid = 0;
  uint64_t bytes = 0;  // of the arena or share
  Device device;
  Code code = Code::kOk;  // of a refusal
  std::string reason;     // of a refusal: UPPER_SNAKE; of a withdrawal: withdrawn, replaced, orphaned, lost, expired,
                          // publisher_exit, administration, reload
  std::string verb;       // of a refusal: the requested verb
  std::string note;       // the note of a Publish or Acquire; the message of a refusal; the client name of a session
};

// Thread-safe. A copy shares the watch; destroying the last copy closes it.
class Watch {
 public:
  // Returns the next event, in order of occurrence. `timeout`: how long to wait; nothing: no limit. DEADLINE_EXCEEDED,
  // NO_EVENT: none in time. RESOURCE_EXHAUSTED, WATCH_CUT: this watch was read too slowly; the message contains the
  // number of lost events. NOT_FOUND, WATCH_NOT_OPEN: the watch is closed or was cut. UNAVAILABLE, WATCH_LOST: the
  // connection of the watch has ended, or this is a forked child. An event that arrives after CANCELLED is kept for the
  // next call.
  Result<Event> Next(std::optional<std::chrono::milliseconds> timeout = {});
  // Closes the watch. Calls that wait in Next return. Idempotent.
  Status Close();

 private:
  friend class Broker;
  class Feed;
  explicit Watch(std::shared_ptr<Feed> feed) : feed_(std::move(feed)) {}

  std::shared_ptr<Feed> feed_;
};

}  // namespace arraybridge

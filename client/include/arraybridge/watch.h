// Watch tells what happens at the broker, to this user's sessions and shares: who publishes, reads, withdraws, comes,
// goes, and is refused. Whoever reads too slowly is cut, and told how many events it lost.
//
//   auto watch = broker.OpenWatch({.kinds = {arraybridge::EventKind::kPublish}});
//   while (auto event = watch->Next(); event.ok()) Show(*event);
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
  kUnknown = 0,  // of a broker newer than this library
  kAllocate = 1,
  kPublish = 2,
  kAcquire = 3,  // by a call; holds, which are taken without one, are not told
  kRelease = 4,
  kWithdraw = 5,
  kSessionBegin = 6,
  kSessionEnd = 7,
  kRefusal = 8,
  kQuota = 9,  // a refusal because a quota or limit is reached
};
// "publish", "session_end"; "unknown".
std::string_view NameOf(EventKind kind);

// What does not apply to its kind is empty or 0.
struct Event {
  uint64_t time_ns = 0;  // since 1970
  EventKind kind{};
  std::string ns;
  std::string name;  // of the share, or of the channel that it was sent into
  uint64_t share = 0;
  uint64_t generation = 0;
  uint64_t session = 0;     // whose doing it was; 0: the broker's own
  uint64_t process_id = 0;  // of that session, for display only
  uint32_t uid = 0;
  uint64_t bytes = 0;  // of the arena or share
  Device device;
  Code code = Code::kOk;  // of a refusal
  std::string reason;     // of a refusal: UPPER_SNAKE; of a withdrawal: withdrawn, replaced, orphaned, lost, expired,
                          // publisher_exit, administration, reload
  std::string verb;       // of a refusal: what was asked for
  std::string note;       // what was said with a Publish or Acquire; a refusal's message; a session's name for itself
};

// Thread-safe. Copying shares the watch; the last copy that goes closes it.
class Watch {
 public:
  // The next event, in the order in which they happened. `timeout`: to wait for one; nothing: as long as it takes.
  // DEADLINE_EXCEEDED, NO_EVENT: none in time; RESOURCE_EXHAUSTED, WATCH_CUT: this one read too slowly, the message
  // says how many it lost; NOT_FOUND, WATCH_NOT_OPEN: it was closed, or cut; UNAVAILABLE, WATCH_LOST: the connection it
  // was opened on has ended, or this is a forked child. What comes after CANCELLED is kept for the next call.
  Result<Event> Next(std::optional<std::chrono::milliseconds> timeout = {});
  // Who waits in Next is told. Idempotent.
  Status Close();

 private:
  friend class Broker;
  class Feed;
  explicit Watch(std::shared_ptr<Feed> feed) : feed_(std::move(feed)) {}

  std::shared_ptr<Feed> feed_;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// An Event is a record of something that happened in the broker, for watchers: a plain value.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The numbers are those of the wire.
enum class EventKind : uint8_t {
  kAllocate = 1,
  kPublish = 2,
  kAcquire = 3,
  kRelease = 4,
  kWithdraw = 5,
  kSessionBegin = 6,
  kSessionEnd = 7,
  kRefusal = 8,
  kQuota = 9,
  kLast = kQuota,
};

// Nanoseconds since 1970.
inline uint64_t NowNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

struct Event {
  uint64_t time_ns = 0;  // since 1970; Events::Emit fills it in
  EventKind kind{};
  uint32_t owner = 0;  // the user who may see it; kSharedByUsers: every user who may read the namespace
  std::string ns;
  std::string name;
  ShareId share{};
  uint64_t generation = 0;
  SessionId session{};  // 0: the broker
  uint64_t process_id = 0;
  uint32_t uid = 0;
  uint64_t bytes = 0;
  Device device;
  Code code = Code::kOk;
  std::string reason;
  std::string_view verb;  // of static storage
  std::string note;

  // An upper bound of the event's bytes in a message.
  size_t message_bytes_max() const {
    constexpr size_t kNumbers = 160;
    return kNumbers + ns.size() + name.size() + device.uuid.size() + reason.size() + verb.size() + note.size();
  }
};

// Selects events among those that the watcher may see.
struct EventFilter {
  uint32_t kinds = 0;  // one bit each, 1 << EventKind; 0: all
  std::string ns;      // empty: all; events without a namespace always match
  std::string name_prefix;

  bool Wants(const Event& event) const {
    if (kinds != 0 && (kinds >> static_cast<unsigned>(event.kind) & 1) == 0) return false;
    if (!ns.empty() && !event.ns.empty() && event.ns != ns) return false;
    return event.name.starts_with(name_prefix);
  }
};

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// A Notice tells the ends of one role that an end of the other role has ended. Notices are part of the channel's order:
// a receiver gets the shares that were sent before a notice, then the notice, then the shares that were sent after it.
// A request says which notice its caller has seen: every end gets every notice once, and a repeated request the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/objects/runs/run.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// How an end of a channel ended: it was closed in order; its process gave it up (an exception left its block, its last
// copy was destroyed); its session ended.
enum class EndedHow : uint8_t { kClosed, kAbandoned, kDied };

struct Notice {
  uint64_t number = 0;  // 1, 2, ... in its list
  uint64_t after = 0;   // shares that had been sent into the channel before it
  EndedHow how{};
  uint64_t stream = 0;
  uint64_t process_id = 0;
  std::shared_ptr<const std::string> client;   // null: unknown
  uint64_t shares = 0;                         // sent, or received, by the end that ended
  bool missing = false;                        // shares that it sent are known to be lost
  std::chrono::steady_clock::time_point at{};  // when the end ended; zero: before this was kept
  Run run{};                                   // of the end that ended; null: none was stated
};

// The newest notices for the ends of one role. A list is bounded, because channels are not charged for it: an end that
// does not ask for long misses the oldest.
class Notices {
 public:
  static constexpr size_t kMost = 8;

  // Sets the number.
  void Add(Notice notice);
  // Restores the previous daemon's notices, in order. `last`: the number of its last notice.
  void Restore(std::vector<Notice> list, uint64_t last);
  const std::vector<Notice>& list() const { return list_; }
  // The oldest notice with a greater number for an end of this run; null: there is none.
  const Notice* After(uint64_t number, const Run& run = nullptr) const;
  uint64_t last() const { return last_; }
  // Null: there is none.
  const Notice* newest() const { return list_.empty() ? nullptr : &list_.back(); }

 private:
  std::vector<Notice> list_;
  uint64_t last_ = 0;
};

// "the sender 'camera' (process 4711)"; what is unknown is left out. `client` may be null.
std::string NameOfEnd(std::string_view role, const std::string* client, uint64_t process_id);

// The answer to a receiver: OUT_OF_RANGE, CHANNEL_ENDED; ABORTED, SENDER_DIED or SENDER_ABANDONED. `earlier`: the
// stream had ended before the receiver opened, and nothing waited for it.
Status ToReceiver(const Notice& notice, std::string_view channel, bool earlier);
// The answer to a sender: FAILED_PRECONDITION, NO_RECEIVER; ABORTED, RECEIVER_DIED or RECEIVER_ABANDONED.
Status ToSender(const Notice& notice, std::string_view channel);

}  // namespace arraybridge::daemon

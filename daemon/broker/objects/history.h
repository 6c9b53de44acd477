// SPDX-License-Identifier: Apache-2.0
// A History records the readers of a share that read by calls, with their notes. It is bounded in bytes and keeps the
// most recent readers. It is destroyed with its share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/ledger/ids.h"

namespace arraybridge::daemon {

// A session that made or read a share, as it was at that time; it may have ended since.
struct Visitor {
  SessionId session{};
  std::shared_ptr<const std::string> client;  // its name for itself; never null
  uint64_t process_id = 0;
  uint32_t uid = 0;
};

struct Visit {
  Visitor who;
  std::string note;  // its latest note
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
  uint64_t count = 0;

  // The memory of the record, strings included.
  uint64_t bytes() const { return sizeof(Visit) + who.client->size() + note.size(); }
};

// Not thread-safe.
class History {
 public:
  // Records another read by the session. Forgets the least recent readers while the history has more than `bytes_max`
  // bytes; the newest one too, if it alone has more.
  void Read(const Visitor& who, std::string_view note, uint64_t now_ns, uint64_t bytes_max);
  // Replaces the session's note. Ignored if the session is unknown, or if the new note does not fit.
  void Renote(SessionId session, std::string_view note, uint64_t bytes_max);

  // The least recent one first.
  const std::vector<Visit>& readers() const { return readers_; }
  uint64_t forgotten() const { return forgotten_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<Visit>::iterator Find(SessionId session);

  std::vector<Visit> readers_;
  uint64_t forgotten_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace arraybridge::daemon

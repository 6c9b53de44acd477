// A History is who read a share by calls, and how they say that they did: bounded in bytes, the most recent readers are
// kept. It dies with its share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/ids.h"

namespace arraybridge {

// A session that made or read a share, as it was then: it may have gone since.
struct Visitor {
  SessionId session{};
  std::shared_ptr<const std::string> client;  // as it called itself; never null
  uint64_t process_id = 0;
  uint32_t uid = 0;
};

struct Visit {
  Visitor who;
  std::string note;  // the last that it said
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
  uint64_t count = 0;

  // What it takes here, names and all.
  uint64_t bytes() const { return sizeof(Visit) + who.client->size() + note.size(); }
};

// Not thread-safe.
class History {
 public:
  // The session read it once more. Forgets the least recent ones as long as there are more than `bytes_max` bytes; the
  // newest too, if it alone has more.
  void Read(const Visitor& who, std::string_view note, uint64_t now_ns, uint64_t bytes_max);
  // What the session says of what it read, instead of what it said. Nothing if it is not known (any more), or if there
  // is no room for that.
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

}  // namespace arraybridge

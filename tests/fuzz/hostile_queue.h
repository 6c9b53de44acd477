// HostileQueue is a session's side of its queue: it writes requests as a client does, or whatever it is given over any
// part of its page.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "proto/boundary/layouts/session_queue.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class HostileQueue {
 public:
  HostileQueue(const UniqueFd& requests, const UniqueFd& completions)
      : own_(Map(requests, PROT_READ | PROT_WRITE)), theirs_(Map(completions, PROT_READ)) {}
  ~HostileQueue() {
    ::munmap(own_, sizeof *own_);
    ::munmap(theirs_, sizeof *theirs_);
  }
  HostileQueue(const HostileQueue&) = delete;
  HostileQueue& operator=(const HostileQueue&) = delete;

  // Nothing where there is no room. More payload than an entry may have is left out.
  void Submit(uint8_t verb, uint8_t flags, std::string_view payload) {
    session_queue::Entry entry;
    const uint64_t words = session_queue::Encode({.verb = verb, .flags = flags, .bytes = 0, .status = 0, .id = ++id_},
                                                 payload.substr(0, session_queue::Format::kPayloadBytesMax), entry);
    if (writer_.HasRoom(spsc::SlotsOf<session_queue::Format>(words))) writer_.Write({entry.data(), words});
  }
  // After a lie about what was taken the completions make no sense: then none is read any more.
  void Reap() {
    session_queue::Entry entry;
    while (reader_.Copy(entry) != 0) reader_.Take();
  }
  void Scribble(uint64_t at, std::string_view with) {
    at %= sizeof *own_;
    std::memcpy(reinterpret_cast<char*>(own_) + at, with.data(), std::min<uint64_t>(with.size(), sizeof *own_ - at));
  }

 private:
  static session_queue::Page* Map(const UniqueFd& file, int protection) {
    void* const base = ::mmap(nullptr, sizeof(session_queue::Page), protection, MAP_SHARED, file.get(), 0);
    AB_CHECK(base != MAP_FAILED);
    return static_cast<session_queue::Page*>(base);
  }

  session_queue::Page* const own_;
  session_queue::Page* const theirs_;
  uint64_t id_ = 0;
  spsc::Writer<session_queue::Format> writer_{own_->progress, own_->slots, theirs_->progress};
  spsc::Reader<session_queue::Format> reader_{own_->progress, theirs_->progress, theirs_->slots};
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// The session's side of a queue; it can write anything.
#pragma once

#include <sys/mman.h>

#include <optional>
#include <string>
#include <string_view>

#include "proto/boundary/frame.h"
#include "proto/boundary/layouts/session_queue.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class QueueClient {
 public:
  QueueClient(const UniqueFd& requests, const UniqueFd& completions)
      : own_(Map(requests, PROT_READ | PROT_WRITE)), theirs_(Map(completions, PROT_READ)) {}
  ~QueueClient() {
    ::munmap(own_, sizeof *own_);
    ::munmap(theirs_, sizeof *theirs_);
  }
  QueueClient(const QueueClient&) = delete;
  QueueClient& operator=(const QueueClient&) = delete;

  // False if there is no room.
  bool Submit(Verb verb, std::string_view payload, uint64_t id, uint8_t flags = 0) {
    session_queue::Entry entry;
    const uint64_t words = session_queue::Encode(
        {.verb = static_cast<uint8_t>(verb), .flags = flags, .bytes = 0, .status = 0, .id = id}, payload, entry);
    if (!writer_.HasRoom(spsc::SlotsOf<session_queue::Format>(words))) return false;
    writer_.Write({entry.data(), words});
    return true;
  }
  bool Publish(std::string_view message, uint64_t id) {
    return Submit(Verb::kPublish, message, id, session_queue::kUnwaited);
  }
  bool DoorbellIsDue() { return doorbell_.IsDue(); }

  struct Completion {
    session_queue::Header header{};
    std::string payload;
  };
  std::optional<Completion> Reap() {
    session_queue::Entry entry;
    if (reader_.Copy(entry) == 0) return std::nullopt;
    reader_.Take();
    return Completion{session_queue::HeaderOf(entry), std::string(session_queue::PayloadOf(entry))};
  }
  void Announce() { doorbell_.Announce(); }

  uint64_t submitted() const { return writer_.filled(); }  // in slots
  uint64_t taken() const { return Load(theirs_->progress.taken, std::memory_order_acquire); }
  uint64_t served() const { return Load(theirs_->progress.served, std::memory_order_acquire); }
  bool daemon_sleeps() const { return Load(theirs_->progress.asleep, std::memory_order_relaxed) != 0; }
  session_queue::Page& own() { return *own_; }
  const session_queue::Page& theirs() const { return *theirs_; }

 private:
  static session_queue::Page* Map(const UniqueFd& file, int protection) {
    void* const base = ::mmap(nullptr, sizeof(session_queue::Page), protection, MAP_SHARED, file.get(), 0);
    AB_CHECK(base != MAP_FAILED);
    return static_cast<session_queue::Page*>(base);
  }

  session_queue::Page* const own_;
  session_queue::Page* const theirs_;
  spsc::Writer<session_queue::Format> writer_{own_->progress, own_->slots, theirs_->progress};
  spsc::Reader<session_queue::Format> reader_{own_->progress, theirs_->progress, theirs_->slots};
  spsc::Doorbell doorbell_{own_->progress, theirs_->progress};
};

}  // namespace arraybridge

// DirectPages are one end of a direct channel as this process maps it (proto/boundary/layouts/direct_channel.h): the page that this end
// writes, the other's and the broker's control block read-only, and both doorbells. A forked child has none of the pages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "client/lifeline.h"
#include "client/shared_mapping.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/layouts/direct_channel.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// How a thread waits for the other end.
struct DirectWait {
  Lifeline& lifeline;  // its end ends the wait
  std::optional<Deadline> until;
  std::chrono::microseconds spin;
  const Lifeline::Interrupted& interrupted;
};

// Thread-safe.
class DirectPages {
 public:
  struct Files {
    UniqueFd own;
    UniqueFd other;
    UniqueFd control;
    UniqueFd doorbell;
    UniqueFd other_doorbell;

    bool complete() const { return own.valid() && other.valid() && control.valid() && doorbell.valid() && other_doorbell.valid(); }
  };
  // FAILED_PRECONDITION: they are none that this client can use, or could shrink. RESOURCE_EXHAUSTED: no address space.
  static Result<std::unique_ptr<DirectPages>> Map(bool sends, Files files);
  DirectPages(const DirectPages&) = delete;
  DirectPages& operator=(const DirectPages&) = delete;

  void* own() const { return own_.base(); }
  const void* other() const { return other_.base(); }
  const direct_channel::ControlBlock& control() const { return *static_cast<const direct_channel::ControlBlock*>(control_.base()); }
  uint64_t capacity() const { return capacity_; }
  bool opened() const { return Load(control().opened, std::memory_order_acquire) != 0; }
  bool stands() const { return Load(control().revoked, std::memory_order_acquire) == direct_channel::kStands; }

  // The broker is ending it: until it has. False: the connection is lost, nobody knows what counted.
  bool AwaitEnd(Lifeline& lifeline) const;
  // `asleep`: the other end's word, `rung`: the sleep from which it was woken last, one thread's at a time.
  void RingIfAsleep(const uint64_t& asleep, uint64_t& rung) const;
  // Until `ready` says so, or something has happened that its caller finds by looking. `asleep`: this end's word.
  // DEADLINE_EXCEEDED, CANCELLED, UNAVAILABLE.
  Status Wait(uint64_t& asleep, const std::function<bool()>& ready, const DirectWait& how) AB_EXCLUDES(mutex_);

 private:
  DirectPages() = default;
  Status Sleep(uint64_t& asleep, const std::function<bool()>& ready, const DirectWait& how);
  void Listen(Lifeline& lifeline, int timeout_ms);

  SharedMapping own_;
  SharedMapping other_;
  SharedMapping control_;
  uint64_t capacity_ = 0;
  UniqueFd doorbell_;
  UniqueFd other_doorbell_;
  Mutex mutex_;
  ConditionVariable woken_;
  bool sleeping_ AB_GUARDED_BY(mutex_) = false;  // a thread of this process does, for all
  uint64_t sleeps_ = 0;                          // of who sleeps
};

}  // namespace arraybridge

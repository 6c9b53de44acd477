// RoadPages are one end of a road as this process maps it (proto/boundary/road_layout.h): the page that this end
// writes, the other's and the broker's Sign read-only, and both bells. A forked child has none of the pages.
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
#include "proto/boundary/road_layout.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// How a thread waits for the other end.
struct RoadWait {
  Lifeline& lifeline;  // its end ends the wait
  std::optional<Deadline> until;
  std::chrono::microseconds spin;
  const Lifeline::Interrupted& interrupted;
};

// Thread-safe.
class RoadPages {
 public:
  struct Files {
    UniqueFd own;
    UniqueFd other;
    UniqueFd sign;
    UniqueFd bell;
    UniqueFd other_bell;

    bool complete() const { return own.valid() && other.valid() && sign.valid() && bell.valid() && other_bell.valid(); }
  };
  // FAILED_PRECONDITION: they are none that this client can use, or could shrink. RESOURCE_EXHAUSTED: no address space.
  static Result<std::unique_ptr<RoadPages>> Map(bool sends, Files files);
  RoadPages(const RoadPages&) = delete;
  RoadPages& operator=(const RoadPages&) = delete;

  void* own() const { return own_.base(); }
  const void* other() const { return other_.base(); }
  const road::Sign& sign() const { return *static_cast<const road::Sign*>(sign_.base()); }
  uint64_t capacity() const { return capacity_; }
  bool opened() const { return Load(sign().opened, std::memory_order_acquire) != 0; }
  bool stands() const { return Load(sign().revoked, std::memory_order_acquire) == road::kStands; }

  // The broker is ending it: until it has. False: the connection is lost, nobody knows what counted.
  bool AwaitEnd(Lifeline& lifeline) const;
  // `asleep`: the other end's word, `rung`: the sleep from which it was woken last, one thread's at a time.
  void RingIfAsleep(const uint64_t& asleep, uint64_t& rung) const;
  // Until `ready` says so, or something has happened that its caller finds by looking. `asleep`: this end's word.
  // DEADLINE_EXCEEDED, CANCELLED, UNAVAILABLE.
  Status Wait(uint64_t& asleep, const std::function<bool()>& ready, const RoadWait& how) AB_EXCLUDES(mutex_);

 private:
  RoadPages() = default;
  Status Sleep(uint64_t& asleep, const std::function<bool()>& ready, const RoadWait& how);
  void Listen(Lifeline& lifeline, int timeout_ms);

  SharedMapping own_;
  SharedMapping other_;
  SharedMapping sign_;
  uint64_t capacity_ = 0;
  UniqueFd bell_;
  UniqueFd other_bell_;
  Mutex mutex_;
  ConditionVariable woken_;
  bool sleeping_ AB_GUARDED_BY(mutex_) = false;  // a thread of this process does, for all
  uint64_t sleeps_ = 0;                          // of who sleeps
};

}  // namespace arraybridge

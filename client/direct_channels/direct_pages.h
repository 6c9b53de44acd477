// SPDX-License-Identifier: Apache-2.0
// DirectPages are one end of a direct channel as this process maps it (proto/boundary/layouts/direct_channel.h). They
// are the page that this end writes, the other end's page and the broker's control block, read-only, and a doorbell
// each way. A forked child has none of the pages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "client/lifeline/lifeline.h"
#include "client/lifeline/shared_mapping.h"
#include "proto/boundary/layouts/direct_channel.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/spin_backoff.h"
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
  using Files = std::span<UniqueFd>;  // as direct_channel::File says
  // FAILED_PRECONDITION: this client cannot use the files, or they could shrink. RESOURCE_EXHAUSTED: no address space.
  // Takes the doorbells.
  static Result<std::unique_ptr<DirectPages>> Map(bool produces, Files files);

  void* own() const { return own_.base(); }
  const void* other() const { return other_.base(); }
  const direct_channel::ControlBlock& control() const {
    return *static_cast<const direct_channel::ControlBlock*>(control_.base());
  }
  uint64_t capacity() const { return capacity_; }
  bool opened() const { return Load(control().opened, std::memory_order_acquire) != 0; }
  bool stands() const { return direct_channel::Stands(control()); }

  // After an entry was written or taken: wakes the other end if it sleeps. False: the broker revokes the direct
  // channel, and the control block will say whether the entry counts. One thread's at a time.
  bool Pass();
  // Waits until the broker has revoked it. False: the connection is lost, and nothing says what counted.
  bool AwaitRevoked(const Lifeline& lifeline) const;
  // Waits until `ready` says so, or for something else that the caller finds when it checks. DEADLINE_EXCEEDED,
  // CANCELLED, UNAVAILABLE.
  Status Wait(const std::function<bool()>& ready, const DirectWait& how) AB_EXCLUDES(mutex_);

 private:
  DirectPages(SharedMapping own, SharedMapping other, SharedMapping control, Files files);
  // True: `ready` says so. False: this thread is to sleep.
  bool Spin(const std::function<bool()>& ready, const DirectWait& how);
  Status Sleep(const std::function<bool()>& ready, const DirectWait& how);
  void Listen(Lifeline& lifeline, int timeout_ms);

  const SharedMapping own_;
  const SharedMapping other_;
  const SharedMapping control_;
  const uint64_t capacity_;
  const UniqueFd doorbell_file_;
  const UniqueFd other_doorbell_file_;
  spsc::Doorbell doorbell_;
  SpinBackoff backoff_;
  Mutex mutex_;
  ConditionVariable woken_;
  bool sleeping_ AB_GUARDED_BY(mutex_) = false;  // a thread of this process does, for all
};

}  // namespace arraybridge

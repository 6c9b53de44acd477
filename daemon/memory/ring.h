// A PublishRing is what one session publishes without a call: a page of entries that the session writes, and a Bell
// that the broker writes and this session alone may read (proto/boundary/ring_layout.h). An entry is copied once and
// then checked; a head that cannot be ends the ring.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "daemon/memory/shared_pages.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/ring_layout.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe, but for Sleep and Wake: those are one thread's.
class PublishRing {
 public:
  // RESOURCE_EXHAUSTED: no descriptor, no memory.
  static Result<std::unique_ptr<PublishRing>> Create();
  ~PublishRing() = default;
  PublishRing(const PublishRing&) = delete;
  PublishRing& operator=(const PublishRing&) = delete;

  // A writable description of the entries, for its session. FAILED_PRECONDITION once it is sealed.
  Result<UniqueFd> ExportEntries() const AB_EXCLUDES(mutex_);
  // A read-only description of the Bell.
  Result<UniqueFd> ExportBell() const;
  // The session has mapped the entries: nobody can map them writable any more, nor take their memory away. Nothing is
  // taken before that. Idempotent.
  Status Seal() AB_EXCLUDES(mutex_);

  // There may be something to take. Cheap.
  bool pending() const;
  // What is done with an entry: the message is a copy. Nothing: it makes no sense at all.
  using Take = std::function<std::optional<Status>(std::string_view message)>;
  // Takes what is there now, in order, at most `most`; how many. INVALID_ARGUMENT: the session wrote nonsense, and
  // nothing is taken from it any more. Who comes while another thread drains waits for it: what was there before is
  // taken when this returns, unless it is more than `most`.
  Result<uint64_t> Drain(uint64_t most, const Take& take) AB_EXCLUDES(mutex_);

  // From now on the session wakes the broker with its next entry. False: there is one already.
  bool Sleep();
  // The broker looks by itself.
  void Wake();

 private:
  PublishRing(std::unique_ptr<SharedPages> entries, std::unique_ptr<SharedPages> bell);

  mutable Mutex mutex_;
  const std::unique_ptr<SharedPages> entries_;  // sealed, and their file closed, under the lock
  const std::unique_ptr<SharedPages> bell_pages_;
  const ring::Page& page_;
  ring::Bell& bell_;
  uint64_t sleeps_ = 1;
  std::atomic<uint64_t> tail_{0};   // changed under the lock
  std::atomic<bool> takes_{false};  // sealed, and no nonsense came yet
};

}  // namespace arraybridge

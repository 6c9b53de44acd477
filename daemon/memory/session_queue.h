// A SessionQueue is how one session and the daemon talk without a system call while both are awake: a page of requests
// that the session writes, and a page of completions that the daemon writes (layouts/session_queue.h). A request is
// copied once and then checked. Unwaited publishes may be served on any thread, so that a name is found as soon as its
// request stands here; all other requests are taken by one thread, the local door's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/memory/shared_pages.h"
#include "proto/boundary/layouts/session_queue.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe, but for Announce and Wake: those are one thread's.
class SessionQueue {
 public:
  // `nonce`: what tells this session from every other one. RESOURCE_EXHAUSTED: no descriptor, no memory.
  static Result<std::unique_ptr<SessionQueue>> Create(uint64_t nonce);
  SessionQueue(const SessionQueue&) = delete;
  SessionQueue& operator=(const SessionQueue&) = delete;

  // For its session: a writable description of the page of requests, and a read-only one of the page of completions.
  // FAILED_PRECONDITION once the requests are sealed.
  Result<std::vector<UniqueFd>> Export() const AB_EXCLUDES(serving_);
  // The session has mapped both: from now on no other process can map the requests writable or take their memory away,
  // and requests are taken. `send_doorbell` wakes the session, on any thread. Idempotent.
  Status Seal(std::function<void()> send_doorbell) AB_EXCLUDES(serving_);

  // A request stands here and can be taken: there is room for its completion; or a publish is being served. Cheap.
  bool HasRequest() const {
    if (!open_.load(std::memory_order_acquire)) return false;
    const bool stands = reader_.HasEntry() || deferred_any_.load();
    return (stands && writer_.MayHaveRoom(kRoomToTake)) || publishing_.load();
  }

  // What an unwaited publish has become. `message`: a PublishRequest, a copy.
  using Publish = std::function<Status(std::string_view message)>;
  // What happens to other requests that are met between unwaited publishes.
  enum class Others {
    kStop,   // they are what Take returns next
    kDefer,  // they are kept, in order, until Take
  };
  // Serves unwaited publishes, at most `most`; how many. While another thread does so, this one waits: what stood here
  // before the call has been served when it returns, unless it was more than `most`. INVALID_ARGUMENT: the session
  // wrote what cannot be, and nothing is taken from it any more.
  Result<uint64_t> ServePublishes(uint64_t most, Others others, const Publish& publish) AB_EXCLUDES(serving_);
  // Copies the next request that is no unwaited publish. False: an unwaited publish is next, or nothing that can be
  // taken now. INVALID_ARGUMENT as ServePublishes.
  Result<bool> Take(session_queue::Entry& entry) AB_EXCLUDES(serving_);

  // After Take: wakes a client that waits for room. Once for several.
  void Finish() AB_EXCLUDES(serving_);

  enum class Written { kNo, kYes, kDoorbellIsDue };
  // The completion of a waited request. kNo: there is no room, or it is too long: the answer goes by the socket.
  Written Complete(const session_queue::Header& header, std::string_view payload) AB_EXCLUDES(completing_);
  // The session ends: no request is taken from now on, so that a request that was not taken is known not to be served.
  void Stop() AB_EXCLUDES(completing_);

  // The session wakes the daemon with its next request; then HasRequest once more, after a fence.
  void Announce() { doorbell_.Announce(); }
  // The daemon polls.
  void Wake() { doorbell_.Wake(); }

 private:
  // Slots: of a short completion, and of one that an unwaited publish needs if it fails.
  static constexpr uint64_t kRoomToTake = 2;

  SessionQueue(std::unique_ptr<SharedPages> requests, std::unique_ptr<SharedPages> completions);
  Status Broken() AB_REQUIRES(serving_);
  // Copies the next entry; the caller takes it. 0: none that can be taken.
  uint64_t Copy(session_queue::Entry& entry) AB_REQUIRES(serving_);
  // The completion of an unwaited publish. REQUIRES: it was taken last.
  void Fail(uint64_t id, const Status& status) AB_REQUIRES(serving_) AB_EXCLUDES(completing_);
  // False: the queue has stopped.
  bool TakeCopied() AB_REQUIRES(serving_) AB_EXCLUDES(completing_);
  // False: there is no room.
  bool Write(const session_queue::Header& header, std::string_view payload, uint64_t spare) AB_REQUIRES(completing_);
  void Serve() AB_REQUIRES(serving_) AB_EXCLUDES(completing_);

  mutable Mutex serving_;  // held while an unwaited publish is served; before `completing_`
  const std::unique_ptr<SharedPages> requests_pages_;
  const std::unique_ptr<SharedPages> completions_pages_;
  const session_queue::Page& requests_;
  session_queue::Page& completions_;
  spsc::Reader<session_queue::Format> reader_;  // under `serving_`
  std::deque<std::unique_ptr<session_queue::Entry>> deferred_ AB_GUARDED_BY(serving_);
  std::atomic<bool> deferred_any_{false};
  std::atomic<bool> publishing_{false};  // a publish was taken and is not served yet
  std::function<void()> send_doorbell_ AB_GUARDED_BY(serving_);
  std::atomic<bool> open_{false};  // sealed, and nothing that cannot be was found in it
  Mutex completing_;
  spsc::Writer<session_queue::Format> writer_;  // under `completing_`
  spsc::Doorbell doorbell_;                     // IsDue under `completing_`
  bool stopped_ AB_GUARDED_BY(completing_) = false;
};

}  // namespace arraybridge

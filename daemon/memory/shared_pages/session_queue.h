// SPDX-License-Identifier: Apache-2.0
// A SessionQueue lets one session and the daemon exchange messages without a system call while both are awake. It has a
// submission queue, a page that the session writes, and a completion queue, a page that the daemon writes
// (layouts/session_queue.h). A request is copied once and then checked. Any thread may serve unwaited publishes, so
// that a name is found as soon as its request is in the queue; the local door's thread takes all other requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/shared_pages/shared_pages.h"
#include "proto/boundary/layouts/session_queue.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Thread-safe, except Announce and Wake, which one thread calls.
class SessionQueue {
 public:
  // `nonce`: of the session. `for_next_daemon`: another may take it over. RESOURCE_EXHAUSTED: descriptors, memory.
  static Result<std::unique_ptr<SessionQueue>> Create(uint64_t nonce, bool for_next_daemon = false);
  // The queue of a session that another daemon served, from ExportForNextDaemon. Entries that it took are counted as
  // served; requests are taken after Seal. FAILED_PRECONDITION: these are no pages of the session's queue, or the
  // session has not mapped them yet.
  static Result<std::unique_ptr<SessionQueue>> Adopt(uint64_t nonce, UniqueFd requests, UniqueFd completions);

  // Opens a writable description of the submission queue for its session, and a read-only description of the completion
  // queue. FAILED_PRECONDITION after Seal.
  Result<std::vector<UniqueFd>> Export() const AB_EXCLUDES(serving_);
  // Descriptions for the next daemon: read-only of the submission queue, writable of the completion queue.
  // FAILED_PRECONDITION after Seal.
  Result<std::vector<UniqueFd>> ExportForNextDaemon() const AB_EXCLUDES(serving_);
  // Called after the session has mapped both pages. From now on no other process can map the submission queue writable
  // or release its memory, and requests are taken. `send_doorbell` wakes the session; it is called on any thread.
  // Idempotent.
  Status Seal(std::function<void()> send_doorbell) AB_EXCLUDES(serving_);

  // True if there is a request and room for its completion, or if a publish is being served. Cheap.
  bool HasRequest() const {
    if (!open_.load(std::memory_order_acquire)) return false;
    const bool stands = reader_.HasEntry() || deferred_any_.load();
    return (stands && writer_.MayHaveRoom(kRoomToTake)) || publishing_.load();
  }

  // False if no unwaited publish is in the queue or being served. On any thread; takes no lock.
  bool MayHavePublish() const;

  static constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  // Serves an unwaited publish and returns its result. `request`: its id; `message`: a copy of the PublishRequest.
  using Publish = std::function<Status(uint64_t request, std::string_view message)>;
  // The treatment of other requests between unwaited publishes.
  enum class Others {
    kStop,   // stop before the first; Take returns it next
    kDefer,  // keep them, in order, for Take
  };
  // Serves at most `most` unwaited publishes and returns their number. Waits while another thread serves: on return,
  // all publishes that were in the queue before the call have been served, unless there were more than `most`.
  // INVALID_ARGUMENT: the session wrote a malformed entry; no further entry is taken.
  Result<uint64_t> ServePublishes(uint64_t most, Others others, const Publish& publish) AB_EXCLUDES(serving_);
  // Copies the next request. False: it is an unwaited publish, or none can be taken. INVALID_ARGUMENT: as above.
  // `end`, if not null: the number of slots up to the request and with it; at most `until`.
  Result<bool> Take(session_queue::Entry& entry, uint64_t* end = nullptr, uint64_t until = kAll) AB_EXCLUDES(serving_);
  // Called when the request of Take has been served. Until then an unwaited one stays, for the next daemon.
  void Served() AB_EXCLUDES(serving_);

  // Called after Take: wakes a client that waits for room. One call is enough after several Takes.
  void Finish() AB_EXCLUDES(serving_);
  // Slots that the session has filled, and that were taken.
  struct Counted {
    uint64_t filled = 0;
    uint64_t taken = 0;
    bool deferred = false;  // some of these have not been returned by Take yet
  };
  born::Figures born() const { return born::Read(requests_.preamble.born); }
  Counted counted() const {
    // In this order: a count that is newer than the flag would hide a deferred request.
    return {Load(requests_.progress.head, std::memory_order_acquire), reader_.taken(std::memory_order_acquire),
            deferred_any_.load()};
  }

  enum class Written { kNo, kYes, kDoorbellIsDue };
  // Writes the completion of a waited request. kNo: no room, or too long a payload; the caller sends it by socket.
  Written Complete(const session_queue::Header& header, std::string_view payload) AB_EXCLUDES(completing_);
  // Called when the session ends. No request is taken from now on, so a request that was not taken will not be served.
  void Stop() AB_EXCLUDES(completing_);

  // Asks the session to wake the daemon with its next request. Then execute a fence and check HasRequest again.
  void Announce() { doorbell_.Announce(); }
  // Tells the session that the daemon polls again.
  void Wake() { doorbell_.Wake(); }

  StoreGuard stored;

 private:
  // Slots for a short completion and for the completion of an unwaited publish that fails.
  static constexpr uint64_t kRoomToTake = 2;

  SessionQueue(std::unique_ptr<SharedPages> requests, std::unique_ptr<SharedPages> completions);
  Status Broken() AB_REQUIRES(serving_);
  // Copies the next entry; the caller then takes it. 0: no entry can be taken.
  uint64_t Copy(session_queue::Entry& entry) AB_REQUIRES(serving_);
  // Writes the completion of a failed unwaited publish. REQUIRES: the publish is the entry that was taken last.
  void Fail(uint64_t id, const Status& status) AB_REQUIRES(serving_) AB_EXCLUDES(completing_);
  // Lets the session refill the slots before the oldest request that is lost if this daemon dies: a waited one is sent
  // again by its client.
  void ShowTaken() AB_REQUIRES(serving_);
  bool MayTake() AB_REQUIRES(serving_) AB_EXCLUDES(completing_);
  bool TakeCopied() AB_REQUIRES(serving_) AB_EXCLUDES(completing_);
  // False: there is no room.
  bool Write(const session_queue::Header& header, std::string_view payload, uint64_t spare) AB_REQUIRES(completing_);
  void Serve() AB_REQUIRES(serving_) AB_EXCLUDES(completing_);

  mutable Mutex serving_;  // held while an unwaited publish is served; acquired before `completing_`
  const std::unique_ptr<SharedPages> requests_pages_;
  const std::unique_ptr<SharedPages> completions_pages_;
  const session_queue::Page& requests_;
  session_queue::Page& completions_;
  spsc::Reader<session_queue::Format> reader_;  // under `serving_`
  struct Deferred {
    std::unique_ptr<session_queue::Entry> entry;
    uint64_t begin;  // slots before it
    uint64_t end;    // as in Take
    bool unwaited;
  };
  std::deque<Deferred> deferred_ AB_GUARDED_BY(serving_);
  std::atomic<bool> deferred_any_{false};
  std::optional<uint64_t> unwaited_
      AB_GUARDED_BY(serving_);                             // slots before the unwaited request that Take returned last
  uint64_t published_before_ AB_GUARDED_BY(serving_) = 0;  // by another daemon
  std::atomic<bool> publishing_{false};                    // a publish has been taken and is not yet served
  std::function<void()> send_doorbell_ AB_GUARDED_BY(serving_);
  std::atomic<bool> open_{false};  // sealed, and no malformed entry has been found
  Mutex completing_;
  spsc::Writer<session_queue::Format> writer_;  // under `completing_`
  spsc::Doorbell doorbell_;                     // IsDue under `completing_`
  bool stopped_ AB_GUARDED_BY(completing_) = false;
};

}  // namespace arraybridge::daemon

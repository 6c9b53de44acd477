// A Mailbox is how one session asks without a system call while the broker is awake: a page that the session writes its
// request to, and one that the broker answers in (proto/boundary/mailbox_layout.h). A request is copied once and then
// checked; what else the session writes there can spoil its own answers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "daemon/memory/shared_pages.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/mailbox_layout.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Not thread-safe, but for Answer and Leave beside the rest: those must not run beside each other.
class Mailbox {
 public:
  // RESOURCE_EXHAUSTED: no descriptor, no memory.
  static Result<std::unique_ptr<Mailbox>> Create();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // A writable description of the requests' page, for its session. FAILED_PRECONDITION once it is sealed.
  Result<UniqueFd> ExportRequests() const { return requests_->Export(true); }
  // A read-only description of the answers' page. FAILED_PRECONDITION once the requests are sealed.
  Result<UniqueFd> ExportAnswers() const { return answers_pages_->Export(false); }
  // The session has mapped both: nobody can map the requests writable any more, nor take their memory away. Nothing is
  // taken before that. Idempotent.
  Status Seal();

  // There may be a request. Cheap.
  bool pending() const { return takes_ && Load(page_.asked, std::memory_order_acquire) != taken_; }
  // Copies the request into `buffer`, which has mailbox::kMessageBytesMax bytes. INVALID_ARGUMENT: it is longer than it
  // may be. REQUIRES: pending().
  Status Take(std::span<std::byte> buffer, FrameHeader* header, std::string_view* message);
  // False: the session does not look for it here, or it is too long: it goes by the socket.
  bool Answer(const FrameHeader& answer, std::string_view message);
  // The answer to this request goes by the socket; the session looks there from now on.
  void Leave(uint64_t request);

  // From now on the session wakes the broker. False: there is a request already.
  bool Sleep() { return !takes_ || mailbox::FallAsleep(answers_, page_, taken_); }
  // The broker looks by itself.
  void Wake() { Store(answers_.awake, takes_ ? 1 : 0, std::memory_order_relaxed); }

 private:
  Mailbox(std::unique_ptr<SharedPages> requests, std::unique_ptr<SharedPages> answers);

  const std::unique_ptr<SharedPages> requests_;
  const std::unique_ptr<SharedPages> answers_pages_;
  mailbox::Page& page_;
  mailbox::Answers& answers_;
  uint64_t taken_ = 0;
  bool takes_ = false;  // sealed
};

}  // namespace arraybridge

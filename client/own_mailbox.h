// An OwnMailbox is a session's mailbox as this process maps it (proto/boundary/mailbox_layout.h): one request at a
// time, and its answer, without a system call while the broker looks. A forked child has none: it must not ask for its
// parent.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "client/crowding.h"
#include "client/own_pages.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/mailbox_layout.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe: one at a time has it, from Take until its answer is there, or its request is read and it has given up.
class OwnMailbox {
 public:
  // FAILED_PRECONDITION: they are none that this client can use, or could shrink. RESOURCE_EXHAUSTED: no address space.
  static Result<std::unique_ptr<OwnMailbox>> Map(const UniqueFd& requests, const UniqueFd& answers);
  OwnMailbox(const OwnMailbox&) = delete;
  OwnMailbox& operator=(const OwnMailbox&) = delete;

  // False: the broker does not look, somebody else asks, or it is too long: ask by the socket. Otherwise Ask is next.
  bool Take(uint64_t request, size_t message_bytes);
  // The flags of a frame that goes by the socket instead: whether the broker shall look into the mailbox from now on.
  // `in_order`: only the broker's sleep, or its own length, kept it from the mailbox.
  uint16_t FlagsBySocket(bool in_order);
  // Of a frame that nobody waits for.
  uint16_t FlagsBeside() const { return crowding_.rests() ? uint16_t{kFrameMailboxRests} : uint16_t{0}; }
  // False: the broker has fallen asleep just now, and has to be woken.
  bool Ask(const FrameHeader& header, std::string_view message) {
    return mailbox::Ask(page_, header, message, answers_);
  }
  // How long to look, at most, and whether the broker cannot answer before this thread yields.
  struct Patience {
    std::chrono::microseconds spin;
    std::chrono::steady_clock::time_point deadline;
    bool yields;
  };
  // False: the answer comes by the socket.
  bool Await(uint64_t request, const Patience& patience, FrameHeader* header, std::string* message);
  // Whether the broker has not seen it, and will not, once the connection has ended. REQUIRES: Await has given up.
  bool IsUnseen(uint64_t request) const {
    return taken_by_.load(std::memory_order_acquire) == (request | kGivenUp) && !BrokerHas(request);
  }

 private:
  // In taken_by_: the answer comes by the socket. It is free again once the broker has copied the request.
  static constexpr uint64_t kGivenUp = uint64_t{1} << 63;

  OwnMailbox(OwnPages requests, OwnPages answers);
  bool BrokerHas(uint64_t request) const { return Load(answers_.taken, std::memory_order_acquire) == request; }
  bool Look(uint64_t request, const Patience& patience) const;

  const OwnPages requests_;
  const OwnPages answers_pages_;
  mailbox::Page& page_;
  const mailbox::Answers& answers_;
  std::atomic<uint64_t> taken_by_{0};  // a request, perhaps kGivenUp
  Crowding crowding_;
  std::atomic<bool> look_wanted_{false};  // the broker was told to look, and nobody has asked here since
};

}  // namespace arraybridge

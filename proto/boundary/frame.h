// SPDX-License-Identifier: Apache-2.0
// A Frame is one datagram of the lifeline: a 16-byte header, one protobuf message, and descriptors. The socket is
// SOCK_SEQPACKET, so a frame arrives whole or not at all and needs no length field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kFrameBytesMax = 64 * 1024;  // includes the header
inline constexpr size_t kFrameDescriptorsMax = 5;    // of an answer; a request has none

// The numbers are part of the protocol: add at the end, never renumber.
enum class Verb : uint16_t {
  kOpenSession = 1,
  kGetServerInfo = 2,
  kAllocate = 3,
  kMapped = 4,
  kPublish = 5,
  kAcquire = 6,
  kExport = 7,
  kRelease = 8,
  kWithdraw = 9,
  kList = 10,
  kGetStats = 11,
  kRedeem = 12,
  kBrowse = 13,
  kOpenChannel = 14,
  kCloseChannel = 15,
  kReceive = 16,
  kDoorbell = 17,  // both directions; no message, no answer: there is an entry in the session's queue
  kWatch = 18,
  kInspect = 19,
  // Broker: another daemon has taken the session over; requests without an answer are to be sent again with
  // kFrameAgain. Client: with kFrameAgain: they follow; without: they have been sent. All three have the same number in
  // `request`. No answer, and no message, but the client's have eight bytes, little-endian: the slots that it has
  // filled in its queue. Only for sessions whose client asked for it (`resumes`).
  kRecovered = 20,
  kClaim = 21,
  kTier = 22,
  kLast = kTier,
};
// The name in the service, in metrics and in logs; "unknown" for a number that is not a verb.
std::string_view NameOf(Verb verb);
// Whether a verb is served after its deadline: it releases something, or a later call collects its answer (Receive,
// Watch). The caller's deadline limits only the caller's waiting.
constexpr bool IsServedLate(Verb verb) {
  return verb == Verb::kRelease || verb == Verb::kCloseChannel || verb == Verb::kMapped || verb == Verb::kReceive ||
         verb == Verb::kWatch;
}

enum FrameFlags : uint16_t {
  kFrameNoReply = 1,       // request: no answer is wanted, not even an error
  kFrameMemoryWanted = 2,  // answer: a client waits for memory; release empty and unused arenas
  kFrameQueued = 4,        // request: the payload of an entry in the session's queue
  kFrameDeadline = 8,      // request: `status` is a deadline, after which the request must not be started
  // Request: the sender wants progress frames before the answer. A progress frame has this flag, the request's verb and
  // number, and no payload: the broker has made progress with work of this request.
  kFrameProgress = 16,
  kFrameAgain = 32,    // request: may have been served before the broker died; has the same number as then
  kFrameOutcome = 64,  // request, with kFrameAgain and no payload: if it was not served, it must not be any more
};

struct FrameHeader {
  uint16_t verb;     // of the request; the answer repeats it
  uint16_t flags;    // FrameFlags
  uint32_t status;   // Code; not 0: the payload is an Error message. In a request: 0, or the deadline (kFrameDeadline)
  uint64_t request;  // the client's number; the answer repeats it
};
static_assert(sizeof(FrameHeader) == 16);

// The form of a deadline in a frame: milliseconds of the broker's CLOCK_MONOTONIC (GetServerInfoResponse.clock_ms),
// modulo 2^32.
inline uint32_t DeadlineOnWire(int64_t clock_ms) { return static_cast<uint32_t>(clock_ms); }
// REQUIRES: the two are less than 2^31 ms (24 days) apart.
inline bool IsDeadlinePast(uint32_t deadline, int64_t clock_ms) {
  return static_cast<int32_t>(static_cast<uint32_t>(clock_ms) - deadline) >= 0;
}
// The longest time until a deadline that a request may state: a longer time cannot be distinguished from a deadline in
// the past.
inline constexpr int64_t kFrameDeadlineMaxMs = int64_t{1} << 30;

// A received frame. The payload points into the caller's buffer.
struct Frame {
  FrameHeader header{};
  std::string_view payload;
  UniqueFd descriptor;         // the first; invalid if the frame has none
  std::vector<UniqueFd> more;  // those after it, also beyond kFrameDescriptorsMax; closing a peer's file may sleep

  size_t descriptors() const { return (descriptor.valid() ? 1 : 0) + more.size(); }
};

enum class ReceiveOutcome {
  kFrame,      // `frame` is filled
  kAgain,      // no frame (non-blocking), or a signal or SO_RCVTIMEO ended the wait
  kClosed,     // end of the stream, or a broken connection
  kMalformed,  // shorter than a header, longer than the buffer, or with lost descriptors (MSG_CTRUNC)
};

// Makes one call of recvmsg. `buffer` must hold kFrameBytesMax bytes. Every received descriptor is close-on-exec and
// owned before anything is checked. Never blocks if `wait` is false.
ReceiveOutcome ReceiveFrame(int socket, std::span<std::byte> buffer, bool wait, Frame* frame);

// Makes the kernel refuse descriptors that the peer sends, with EPERM. Accepted sockets inherit this. False: Linux
// before 6.16, or no Unix socket.
bool TakeNoDescriptors(int socket);
// Whether that has been done.
bool TakesNoDescriptors(int socket);

// Makes one call of recv, which is cheaper: for a socket that takes no descriptors.
ReceiveOutcome ReceivePlainFrame(int socket, std::span<std::byte> buffer, bool wait, Frame* frame);

enum class SendOutcome {
  kSent,
  kAgain,               // the peer does not read, and its queue is full
  kClosed,              // the peer has disconnected
  kTooManyDescriptors,  // ETOOMANYREFS: too many of our descriptors are unread
};

// Makes one system call; never blocks if `wait` is false; never raises SIGPIPE. The caller keeps the descriptors.
// REQUIRES: sizeof(FrameHeader) + payload.size() <= kFrameBytesMax; at most kFrameDescriptorsMax descriptors.
SendOutcome SendFrame(int socket, const FrameHeader& header, std::string_view payload, std::span<const int> descriptors,
                      bool wait);
// `descriptor` < 0: none.
inline SendOutcome SendFrame(int socket, const FrameHeader& header, std::string_view payload, int descriptor,
                             bool wait) {
  return SendFrame(socket, header, payload, {&descriptor, descriptor < 0 ? size_t{0} : size_t{1}}, wait);
}

}  // namespace arraybridge

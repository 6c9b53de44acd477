// A Frame is one datagram of the lifeline: a 16-byte header, one protobuf message, and descriptors that ride along.
// The socket is SOCK_SEQPACKET, so a frame arrives whole or not at all and its length needs no field.
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
inline constexpr size_t kFrameBytesMax = 64 * 1024;  // header included
inline constexpr size_t kFrameDescriptorsMax = 5;    // of an answer; a request has none

// The order is the wire's: add at the end, never renumber.
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
  kDoorbell = 17,  // either way, no message, no answer: something stands in the session's queue
  kWatch = 18,
  kInspect = 19,
  kLast = kInspect,
};
// As the service calls it, in metrics and logs; "unknown" for a number that is no verb's.
std::string_view NameOf(Verb verb);
// It is served however late it comes: it gives something back, or a later call takes its answer (Receive, Watch). The
// deadline of its caller bounds that one's waiting alone.
constexpr bool IsServedLate(Verb verb) {
  return verb == Verb::kRelease || verb == Verb::kCloseChannel || verb == Verb::kMapped || verb == Verb::kReceive ||
         verb == Verb::kWatch;
}

enum FrameFlags : uint16_t {
  kFrameNoReply = 1,       // request: the sender does not want an answer, not even an error
  kFrameMemoryWanted = 2,  // answer: somebody waits for memory; give back what is empty or unused
  kFrameQueued = 4,        // request: the payload of an entry of the session's queue, which holds its place
  kFrameDeadline = 8,      // request: `status` is a deadline; once it has passed, the request must not be begun
  // Request: the sender wants frames that tell of progress before the answer. Such a frame has this flag, the request's
  // verb and number, and no payload: the broker has got further with work of the request's own.
  kFrameProgress = 16,
};

struct FrameHeader {
  uint16_t verb;     // of the request; an answer repeats it
  uint16_t flags;    // FrameFlags
  uint32_t status;   // Code; not 0: the payload is an Error message. In requests 0, or the deadline (kFrameDeadline)
  uint64_t request;  // the client's number; an answer repeats it
};
static_assert(sizeof(FrameHeader) == 16);

// A deadline as a frame states it: milliseconds of the broker's CLOCK_MONOTONIC (GetServerInfoResponse.clock_ms),
// modulo 2^32.
inline uint32_t DeadlineOnWire(int64_t clock_ms) { return static_cast<uint32_t>(clock_ms); }
// REQUIRES: the two are less than 2^31 ms (24 days) apart.
inline bool IsDeadlinePast(uint32_t deadline, int64_t clock_ms) {
  return static_cast<int32_t>(static_cast<uint32_t>(clock_ms) - deadline) >= 0;
}
// What a request may still have before its deadline if it states one: more than that cannot be told from the past.
inline constexpr int64_t kFrameDeadlineMaxMs = int64_t{1} << 30;

// What Receive found. The payload points into the buffer that the caller gave.
struct Frame {
  FrameHeader header{};
  std::string_view payload;
  UniqueFd descriptor;         // the first; invalid if none came
  std::vector<UniqueFd> more;  // those after it, also beyond kFrameDescriptorsMax. Closing a peer's file may sleep

  size_t descriptors() const { return (descriptor.valid() ? 1 : 0) + more.size(); }
};

enum class ReceiveOutcome {
  kFrame,      // `frame` is filled
  kAgain,      // nothing there (non-blocking), or a signal or SO_RCVTIMEO ended the wait
  kClosed,     // end of the stream, or the connection is broken
  kMalformed,  // shorter than a header, longer than the buffer, or its descriptors did not fit (MSG_CTRUNC)
};

// One recvmsg. `buffer` must hold kFrameBytesMax bytes. Every received descriptor is close-on-exec and owned before
// anything is looked at. Never blocks when `wait` is false.
ReceiveOutcome ReceiveFrame(int socket, std::span<std::byte> buffer, bool wait, Frame* frame);

// One recv, which is cheaper: for a socket that lets no descriptor in (SO_PASSRIGHTS off).
ReceiveOutcome ReceivePlainFrame(int socket, std::span<std::byte> buffer, bool wait, Frame* frame);

enum class SendOutcome {
  kSent,
  kAgain,               // the peer does not read: its queue is full
  kClosed,              // the peer is gone
  kTooManyDescriptors,  // ETOOMANYREFS: too many descriptors of ours are in flight, unread
};

// One system call; never blocks when `wait` is false; never raises SIGPIPE. The descriptors stay the caller's.
// REQUIRES: sizeof(FrameHeader) + payload.size() <= kFrameBytesMax; at most kFrameDescriptorsMax descriptors.
SendOutcome SendFrame(int socket, const FrameHeader& header, std::string_view payload, std::span<const int> descriptors,
                      bool wait);
// With one descriptor; `descriptor` < 0: with none.
inline SendOutcome SendFrame(int socket, const FrameHeader& header, std::string_view payload, int descriptor,
                             bool wait) {
  return SendFrame(socket, header, payload, {&descriptor, descriptor < 0 ? size_t{0} : size_t{1}}, wait);
}

}  // namespace arraybridge

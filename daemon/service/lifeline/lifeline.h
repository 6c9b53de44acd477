// A Lifeline is one client's socket at the local door: what the daemon still owes it, how much it may be owed, and why
// it ended. The socket's life is the session's life.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/sessions/open_queue.h"
#include "daemon/config/config.h"
#include "daemon/service/lifeline/descriptors_in_flight.h"
#include "daemon/service/lifeline/passed_fd.h"
#include "daemon/service/system/listener.h"
#include "daemon/service/telemetry/tallies.h"
#include "daemon/service/telemetry/traffic.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// A flag of our own in a request that came by the session's queue: its answer goes there.
inline constexpr uint16_t kFrameInQueue = 0x8000;

// Answer, Refuse, TellProgress and Cut are thread-safe: a worker may answer what the loop received. The rest is the
// loop's.
class Lifeline {
 public:
  // Takes back what an answer granted whose descriptor could not be sent: the client hears a refusal instead. Called
  // with a lock held.
  using Undelivered = std::function<void(SessionId session, Verb verb, std::string_view answer)>;

  // Asks the loop for EPOLLOUT through `epoll`, which outlives the socket, as (2 * key).
  Lifeline(uint64_t key, Connection connection, const Limits& limits, int epoll,
           std::shared_ptr<DescriptorsInFlight> in_flight, const Undelivered& undelivered, Traffic& traffic);

  uint64_t key() const { return key_; }
  int socket() const { return socket_.get(); }
  bool takes_no_descriptors() const { return takes_no_descriptors_; }
  bool open() const { return socket_.valid(); }
  int process() const { return peer_.process == nullptr ? -1 : peer_.process->get(); }
  const Peer& peer() const { return peer_; }

  // The loop's own notes.
  std::optional<SessionId> session;
  bool joined = false;              // the session is a gRPC stream's; this socket only redeems its tickets
  bool polled = false;              // the loop looks into its queue by itself
  bool backed_off = false;          // its client does not spin
  int quiet_turns = 0;              // of the loop, since something stood in its queue
  bool frames_served = false;       // those that were sent before the first request in the queue
  std::optional<std::string> kept;  // the payload of an entry that has not been taken yet (kFrameQueued)
  uint64_t served = 0;              // when its socket was, counted by the loop

  // The session has mapped its queue. REQUIRES: the loop.
  void SetQueue(OpenQueue queue) AB_EXCLUDES(mutex_);
  // Null: it has none. REQUIRES: the loop.
  const OpenQueue* queue() const { return queue_.get(); }
  // Wakes a client that sleeps.
  void SendDoorbell() AB_EXCLUDES(mutex_);
  // Nothing is sent when the request wanted no answer. Never blocks.
  void Answer(const FrameHeader& request, const google::protobuf::MessageLite& message, PassedFd descriptor,
              bool memory_wanted) AB_EXCLUDES(mutex_);
  // `payload`: the bytes of the message. REQUIRES: they fit into a frame.
  void AnswerBytes(const FrameHeader& request, std::string_view payload, PassedFd descriptor, bool memory_wanted)
      AB_EXCLUDES(mutex_);
  void Refuse(const FrameHeader& request, const Status& status, bool memory_wanted) AB_EXCLUDES(mutex_);
  // That work for it gets further. Left out where the peer does not read.
  void TellProgress(const FrameHeader& request) AB_EXCLUDES(mutex_);
  // The socket takes more. Sends what waits. A duration: it took nothing, although it said so (the kernel has no
  // memory, or no buffers), and is to be tried again after as long; until then epoll is not asked about it.
  std::optional<std::chrono::milliseconds> Flush() AB_EXCLUDES(mutex_);
  // No more requests, no more answers; the loop sees the end of the stream. The first cause counts.
  void Cut(EndCause cause) AB_EXCLUDES(mutex_);
  std::optional<EndCause> cut() const;
  // Closes the socket. Idempotent.
  void Close() AB_EXCLUDES(mutex_);

 private:
  static constexpr int kNotCut = -1;
  struct Outgoing {
    FrameHeader header;
    std::string_view payload;
    PassedFd descriptor;
    std::string refusal;  // the payload, if it became one
  };
  struct Owed {
    FrameHeader header;
    std::string payload;
    PassedFd descriptor;
  };

  void Send(FrameHeader header, std::string_view payload, PassedFd descriptor) AB_EXCLUDES(mutex_);
  // False: there is no room in the queue.
  bool Complete(const FrameHeader& header, std::string_view payload) AB_REQUIRES(mutex_);
  // A client that spins is told that its answer is on the socket.
  void CompleteOnSocket(const FrameHeader& header) AB_REQUIRES(mutex_);
  void SendDoorbellLocked() AB_REQUIRES(mutex_);
  SendOutcome SendNow(Outgoing* frame) AB_REQUIRES(mutex_);
  void BecomeRefusal(Outgoing* frame, std::string_view message) AB_REQUIRES(mutex_);
  void Owe(Outgoing frame) AB_REQUIRES(mutex_);
  void ForgetOwed() AB_REQUIRES(mutex_);
  void CutLocked(EndCause cause) AB_REQUIRES(mutex_);
  void WantWritable(bool wanted) AB_REQUIRES(mutex_);

  const uint64_t key_;
  const Limits& limits_;
  const int epoll_;
  const Peer peer_;
  const bool takes_no_descriptors_;
  const std::shared_ptr<DescriptorsInFlight> in_flight_;  // of its user
  const Undelivered& undelivered_;
  Traffic& traffic_;
  UniqueFd socket_;  // closed by the loop alone; senders hold the mutex
  mutable Mutex mutex_;
  std::unique_ptr<const OpenQueue> queue_;  // set by the loop alone, under the mutex
  std::deque<Owed> owed_ AB_GUARDED_BY(mutex_);
  uint64_t owed_bytes_ AB_GUARDED_BY(mutex_) = 0;
  std::chrono::milliseconds pause_ AB_GUARDED_BY(mutex_){0};  // after the last Flush that sent nothing; 0: it sent
  std::atomic<int> cut_{kNotCut};                             // an EndCause; written under the mutex
  bool closed_ AB_GUARDED_BY(mutex_) = false;
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A Lifeline is one client's socket at the local door: the frames that the daemon still has to send, their limits, and
// the cause of its end. The session ends when the socket is closed.
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
#include <unordered_map>
#include <unordered_set>

#include "daemon/broker/objects/open_queue.h"
#include "daemon/config/config.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/service/lifeline/descriptors_in_flight.h"
#include "daemon/service/system/listener.h"
#include "daemon/service/telemetry/tallies.h"
#include "daemon/service/telemetry/traffic.h"
#include "daemon/service/wire/passed_fd.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// An internal flag of a request that came by the session's queue: the answer goes there.
inline constexpr uint16_t kFrameInQueue = 0x8000;

// Answer, Refuse, TellProgress and Cut are thread-safe: a worker may answer a request that the loop received. Only the
// loop may call the other methods.
class Lifeline {
 public:
  // Revokes what an answer granted if its descriptor could not be sent; the client gets a refusal instead. Called with
  // a lock held.
  using Undelivered = std::function<void(SessionId session, Verb verb, std::string_view answer)>;

  // Requests EPOLLOUT events with the tag (2 * key) from `epoll`, which must outlive the socket.
  Lifeline(uint64_t key, Connection connection, const Limits& limits, int epoll,
           std::shared_ptr<DescriptorsInFlight> in_flight, const Undelivered& undelivered, Traffic& traffic);

  uint64_t key() const { return key_; }
  int socket() const { return socket_.get(); }
  bool takes_no_descriptors() const { return takes_no_descriptors_; }
  bool open() const { return socket_.valid(); }
  int process() const { return peer_.process == nullptr ? -1 : peer_.process->get(); }
  const Peer& peer() const { return peer_; }

  // State that only the loop uses.
  std::optional<SessionId> session;
  bool joined = false;              // the session belongs to a gRPC stream; this socket only redeems its tickets
  bool polled = false;              // the loop polls the session's queue
  bool backed_off = false;          // the client does not spin
  int quiet_turns = 0;              // turns of the loop since the queue last had an entry
  bool frames_served = false;       // the frames that were sent before the queue's first request
  std::optional<std::string> kept;  // payload for an entry that has not been taken yet (kFrameQueued)
  uint64_t served = 0;              // the loop's turn in which the socket was last served
  // Of a session that another daemon served (local_door_resume.cc).
  struct Resuming {
    uint64_t number = 0;                             // of the Recovered frames
    bool begun = false;                              // what the client sends again follows
    std::unordered_set<uint64_t> seen;               // requests that were served since: a copy is dropped
    std::unordered_map<uint64_t, std::string> kept;  // payloads of entries that have not been taken yet
    uint64_t until = 0;                              // entries before this slot of the queue are older
    bool is_complete = false;                        // the client has sent everything again
  };
  std::unique_ptr<Resuming> resuming;
  bool awaits_client() const { return resuming != nullptr && !resuming->is_complete; }
  StoreGuard stored;  // keeps the socket for the next daemon

  // Called when the session has mapped its queue. REQUIRES: called by the loop.
  void SetQueue(OpenQueue queue) AB_EXCLUDES(mutex_);
  // Null if the session has no queue. REQUIRES: called by the loop.
  const OpenQueue* queue() const { return queue_.get(); }
  // Tells the client that another daemon has taken its session over.
  void TellRecovered(uint64_t number) AB_EXCLUDES(mutex_);
  // Wakes a client that sleeps.
  void SendDoorbell() AB_EXCLUDES(mutex_);
  // Sends nothing if the request wanted no answer. Never blocks. `message`: its bytes.
  void Answer(const FrameHeader& request, std::string_view message, PassedFd descriptor, bool memory_wanted)
      AB_EXCLUDES(mutex_);
  void Refuse(const FrameHeader& request, const Status& status, bool memory_wanted) AB_EXCLUDES(mutex_);
  // Reports that work on the request has made progress. Sends nothing if the peer does not read.
  void TellProgress(const FrameHeader& request) AB_EXCLUDES(mutex_);
  // Called when the socket is writable. Sends waiting frames. Returns a duration if the socket accepted nothing
  // although it was writable (the kernel lacks memory or buffers): retry after that time; until then epoll does not
  // watch for writability.
  std::optional<std::chrono::milliseconds> Flush() AB_EXCLUDES(mutex_);
  // Stops requests and answers; the loop then sees the end of the stream. The first cause is kept.
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
    std::string refusal;  // the payload of the refusal, if the answer became one
  };
  struct Owed {
    FrameHeader header;
    std::string payload;
    PassedFd descriptor;
  };

  void Send(FrameHeader header, std::string_view payload, PassedFd descriptor) AB_EXCLUDES(mutex_);
  // Puts an answer into the session's queue. False: there is no room.
  bool Complete(const FrameHeader& header, std::string_view payload) AB_REQUIRES(mutex_);
  // Tells a spinning client that its answer is on the socket.
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
  const std::shared_ptr<DescriptorsInFlight> in_flight_;  // shared by all lifelines of the user
  const Undelivered& undelivered_;
  Traffic& traffic_;
  UniqueFd socket_;  // only the loop closes it; senders hold the mutex
  mutable Mutex mutex_;
  std::unique_ptr<const OpenQueue> queue_;  // only the loop sets it, under the mutex
  std::deque<Owed> owed_ AB_GUARDED_BY(mutex_);
  uint64_t owed_bytes_ AB_GUARDED_BY(mutex_) = 0;
  std::chrono::milliseconds pause_ AB_GUARDED_BY(mutex_){
      0};                          // after the last Flush that sent nothing; 0: the last Flush sent data
  std::atomic<int> cut_{kNotCut};  // an EndCause or kNotCut; written under the mutex
  bool closed_ AB_GUARDED_BY(mutex_) = false;
};

}  // namespace arraybridge::daemon

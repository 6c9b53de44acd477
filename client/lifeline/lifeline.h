// SPDX-License-Identifier: Apache-2.0
// The Lifeline is the socket whose end ends the session. It sends requests and receives answers in any order. It has no
// thread of its own: one of the waiting threads reads the answers for all of them, and matches them by request id.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/lifeline/queue_pages.h"
#include "client/process/fork_guard.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/spin_backoff.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

using Deadline = std::chrono::steady_clock::time_point;

// A longer time counts as this one, so that milliseconds::max() is a long time and not one that has passed.
inline constexpr std::chrono::hours kLongestTime{24 * 36525};
inline Deadline DeadlineAfter(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + std::clamp<std::chrono::milliseconds>(time, -kLongestTime, kLongestTime);
}
// Nothing: no limit.
inline std::optional<Deadline> DeadlineAfter(std::optional<std::chrono::milliseconds> time) {
  return time ? std::optional(DeadlineAfter(*time)) : std::nullopt;
}
// Rounded up; 0 at least, and `most` at most. Without a deadline `most`.
inline std::chrono::milliseconds TimeUntil(std::optional<Deadline> then,
                                           std::chrono::milliseconds most = kLongestTime) {
  using std::chrono::milliseconds;
  if (!then) return most;
  return std::clamp(std::chrono::ceil<milliseconds>(*then - Deadline::clock::now()), milliseconds(0), most);
}

struct Answer {
  std::string payload;
  UniqueFd descriptor;           // the first; some answers have none
  std::vector<UniqueFd> more{};  // the descriptors after the first
};

// Thread-safe.
class Lifeline : public ForkParticipant {
 public:
  // Takes an answer that no thread waits for, or whose caller has given up. It must give back the memory that the
  // answer granted. It runs without a lock, on the thread that reads, before later answers are read, and must not wait
  // for one.
  using CompletionHandler = std::function<void(Result<Answer>)>;

  // A round trip in which both peers sleep, on two processors, takes eight times as long as one in which they spin. A
  // spinning thread always yields as well, because the scheduler tends to put both peers on one processor.
  static constexpr std::chrono::microseconds kSpin{30};

  // True if the calling thread must stop waiting. Each waiting thread calls it ten times a second, without a lock.
  using Interrupted = std::function<bool()>;

  // `address`: a socket, or a directory that contains lifeline.sock. UNAVAILABLE: no broker answers there.
  static Result<std::shared_ptr<Lifeline>> Connect(const std::string& address, Deadline deadline,
                                                   Interrupted interrupted = {},
                                                   std::chrono::microseconds spin = kSpin);
  explicit Lifeline(UniqueFd socket, Interrupted interrupted = {}, std::chrono::microseconds spin = kSpin);
  ~Lifeline() override;

  // Sends a request and waits for its answer. Returns the broker's own error, or one of these:
  // - DEADLINE_EXCEEDED, or CANCELLED if interrupted. The reason is kUnanswered if the broker may still serve the
  // request; the metadata has kRequestKey if that would change what other clients find.
  // - UNAVAILABLE if the connection is lost. The reason is kNotSent if the broker cannot have seen the request.
  // For an Allocate, each progress report of the broker restarts the timeout.
  Result<Answer> Call(Verb verb, std::string_view payload, Deadline deadline, const CompletionHandler& handler = {});
  // Sends a request whose answer is not needed. Waits for room until `deadline`, or not at all without one. On any
  // error the request was not sent. A completion handler must not give a deadline, because no thread reads until it
  // returns. `handler` takes the answer if there is one: only an unwaited entry of the queue outlives a daemon that
  // took it, so a frame is answered.
  Status Post(Verb verb, std::string_view payload, std::optional<Deadline> deadline = {},
              CompletionHandler handler = {});
  // Sends a request whose answer goes to `handler`. Never waits.
  Status Ask(Verb verb, std::string_view payload, CompletionHandler handler);
  // Reads the answers that have arrived, without waiting, and runs the handlers of late ones on this thread.
  void ReadArrived();

  // From now on each request states its deadline, after which the broker does not begin it. `ahead`: how far the
  // broker's clock is ahead of this process's, if it runs in another time namespace. REQUIRES: no other thread uses the
  // Lifeline yet.
  void StateDeadlines(std::chrono::milliseconds ahead) { broker_ahead_ = ahead; }
  // Sets a function that is called, before the handler, with every answer to a request whose caller has given up.
  // REQUIRES: as for StateDeadlines.
  using Observer = std::function<void(uint64_t request, Verb verb, const Result<Answer>& answer)>;
  void ObserveLate(Observer observer) { observer_ = std::move(observer); }
  // Reads until the answer to a request that was given up has been handled, or the connection is lost.
  // DEADLINE_EXCEEDED, CANCELLED: the answer has not arrived.
  Status AwaitLate(uint64_t request, Deadline deadline);
  // Distinguishes this Lifeline's requests from those of all other Lifelines, in this process and in others.
  uint64_t nonce() const { return nonce_; }

  // Allows the session a queue, which is opened after a few calls. Its unwaited publishes go to namespace `ns`.
  // REQUIRES: as for StateDeadlines.
  void OfferQueue(std::string ns) {
    queue_ns_ = std::move(ns);
    queue_offered_ = true;
  }
  // Asks the broker to open the queue. Never waits.
  void WantQueue();
  born::Figures* born() const { return has_queue() ? &queue_.load()->born() : nullptr; }  // null without a queue
  // True once requests go through the queue.
  bool has_queue() const { return queue_.load(std::memory_order_acquire) != nullptr; }
  struct Submitted {
    uint64_t request = 0;
    uint64_t end = 0;  // total slots of the queue, including this request
  };
  struct Failed {
    uint64_t request;
    Status why;
  };
  struct Confirmed {
    uint64_t served = 0;         // slots of the queue whose publishes have been served
    std::vector<Failed> failed;  // since the last call, in order
  };
  Confirmed TakeConfirmed() AB_EXCLUDES(mutex_);
  struct Submission {
    std::optional<Submitted> submitted;  // nothing: the publish was not sent
    Confirmed confirmed;                 // of earlier publishes
  };
  // Publishes without waiting for an answer or for room.
  Submission SubmitPublish(std::string_view message) AB_EXCLUDES(mutex_);

  // False if the connection is lost. Asks the kernel at most once per tick of its clock. For callers that send nothing.
  bool alive();
  // For callers that only poll for the end of the connection.
  int socket() const { return socket_.get(); }
  bool lost() const { return is_lost_.load(std::memory_order_acquire); }
  // How many daemons have taken the session over, as far as the frames that were read say it.
  uint64_t continued() const { return continued_.load(std::memory_order_relaxed); }
  // True if this process has one processor: another process runs only when this one yields or sleeps.
  bool alone() const { return alone_; }
  // Ends the connection, and with it all grants, because the broker sent an invalid answer.
  void Break(Status why) {
    MutexLock lock(mutex_);
    Lose(std::move(why));
  }
  // The broker has reported that a client waits for memory. TakeMemoryWanted returns true once per report.
  bool memory_wanted() const { return memory_wanted_.load(std::memory_order_relaxed); }
  bool TakeMemoryWanted() { return memory_wanted_.exchange(false, std::memory_order_relaxed); }

  void AfterForkInChild() noexcept override {
    socket_.reset();
    queue_.store(nullptr);
  }

  static constexpr std::string_view kNotSent = "NOT_SENT";
  static constexpr std::string_view kUnanswered = "UNANSWERED";
  static constexpr std::string_view kRequestKey = "request";  // nonce/number, in decimal digits
  static constexpr size_t kUnawaitedMax = 1024;
  static constexpr size_t kUnreadMax = 64;

 private:
  // A waiting call: an object on the caller's stack that is linked into `waiting_`.
  struct Waiter {
    Verb verb() const { return Verb{header.verb}; }

    FrameHeader header;
    std::string_view payload{};                    // stays the caller's
    std::optional<Deadline::duration> patience{};  // renewed by each progress report; nothing: not renewable
    bool advanced = false;                         // since the last check
    Waiter* next = nullptr;
    std::optional<Result<Answer>> answer{};
    std::atomic<bool> done{false};       // the answer has been set, and the Waiter is in no list
    std::atomic<bool> on_socket{false};  // the answer is a frame on the socket
  };
  struct Unawaited {
    Verb verb;
    CompletionHandler handler{};
    bool given_up = false;  // the caller gave up; false: the request was never waited for
    std::string payload{};  // of a request that was never waited for
    bool sent = false;
    bool arrived = false;  // in late_, or being handled
  };
  struct LateAnswer {
    uint64_t request;
    Unawaited of;
    Result<Answer> answer;
  };

  // How often a waiting thread checks whether it is interrupted. On one processor recvmsg waits in steps of this
  // length, and returns early enough to keep the deadline.
  static constexpr std::chrono::milliseconds kBlock{100};
  static int Milliseconds(Deadline deadline);
  static Status Cancelled();
  // Needs no memory itself. Only for Lose, which uses it once.
  Status NoMemory() AB_REQUIRES(mutex_) { return std::move(no_memory_); }
  // A bad_alloc leaves the waiter linked.
  Result<Answer> CallOf(Waiter& waiter, std::string_view payload, Deadline deadline, const CompletionHandler& handler)
      AB_EXCLUDES(mutex_);

  Result<Answer> CallByFrame(Waiter& waiter, std::string_view payload, Deadline deadline,
                             const CompletionHandler& handler) AB_EXCLUDES(mutex_);
  // Ask, but waits for room as Post does.
  Status AskUntil(Verb verb, std::string_view payload, CompletionHandler handler, std::optional<Deadline> deadline)
      AB_EXCLUDES(mutex_);
  Status SendUnawaited(const FrameHeader& header, std::string_view payload, std::optional<Deadline> deadline)
      AB_EXCLUDES(mutex_);
  void NoteSent(uint64_t request) AB_REQUIRES(mutex_);
  // Reads the answers that have arrived if there are many and no thread waits for one: the broker ends a connection
  // that leaves some hundred answers unread. Runs no handlers.
  void ReadUnread() AB_REQUIRES(mutex_);
  FrameHeader HeaderOf(Verb verb, Deadline deadline);
  static Status TooLarge(size_t bytes);
  // Waits until the socket is writable, or not at all without a deadline. Releases the lock while it waits.
  // DEADLINE_EXCEEDED, CANCELLED.
  Status AwaitWritable(std::optional<Deadline> deadline) AB_REQUIRES(mutex_);
  // A request for the queue (lifeline_queue.cc).
  struct Request {
    const FrameHeader& header;
    uint8_t flags;  // the entry's flags beyond those of the header
    std::string_view payload;
    std::optional<Deadline> deadline;  // nothing: must not wait for room
    Waiter* waiter;                    // null: no thread waits for the answer
    Confirmed* confirmed = nullptr;    // filled under the same lock
  };
  struct Turn {
    Deadline begun;
    uint64_t completed;
  };
  void CountCall();
  void MapQueue(const Result<Answer>& answer);
  Result<Answer> CallByQueue(QueuePages& queue, Waiter& waiter, std::string_view payload, Deadline deadline,
                             const CompletionHandler& handler);
  // Returns the total number of slots of the queue, including this request. On any error nothing was sent.
  Result<uint64_t> Submit(QueuePages& queue, const Request& request) AB_EXCLUDES(mutex_);
  SendOutcome SendQueued(const Request& request) AB_REQUIRES(mutex_);
  void SendDoorbell(QueuePages& queue, std::optional<Deadline> deadline) AB_EXCLUDES(mutex_);
  // Waits for room for `slots` slots in the queue, or on the socket if 0. Releases the lock while it waits.
  Status AwaitFreeSlots(QueuePages& queue, uint64_t slots, std::optional<Deadline> deadline) AB_REQUIRES(mutex_);
  Status ReadUntilFreeSlots(QueuePages& queue, uint64_t slots, Deadline deadline) AB_REQUIRES(mutex_);
  void Reap(QueuePages& queue) AB_REQUIRES(mutex_);
  Confirmed TakeConfirmed(QueuePages& queue) AB_REQUIRES(mutex_);
  bool Spin(QueuePages& queue, const Waiter& waiter, uint64_t submitted, const Turn& turn) AB_EXCLUDES(mutex_);
  void NoteTurn(const Turn& turn, Deadline now);
  // Announces that this process is about to sleep. False: something has arrived.
  bool MaySleep(QueuePages& queue) AB_REQUIRES(mutex_);
  // False: the socket has no room. UNAVAILABLE: the connection is lost. The caller registers the request under the same
  // lock, so that Resume sends again exactly what has been sent.
  Result<bool> TrySend(const FrameHeader& header, std::string_view payload) AB_REQUIRES(mutex_);
  Status SendFrameUntil(const FrameHeader& header, std::string_view payload, std::optional<Deadline> deadline)
      AB_REQUIRES(mutex_);
  Result<Answer> Await(Waiter& waiter, Deadline deadline, const CompletionHandler& handler) AB_REQUIRES(mutex_);
  // Reads, or waits for the thread that reads, until `is_over` returns true. `is_over` is called with the lock held and
  // may move the deadline. OK: it is over, or the connection is lost. DEADLINE_EXCEEDED, CANCELLED.
  template <class IsOver>
  Status ReadUntil(const Deadline& deadline, const IsOver& is_over) AB_REQUIRES(mutex_);
  Status GiveUp(Waiter& waiter, const CompletionHandler& handler, Status why) AB_REQUIRES(mutex_);
  // Releases the lock during the call.
  bool IsInterrupted() AB_REQUIRES(mutex_);
  // The latest time to sleep to before checking again whether this thread is interrupted.
  Deadline Step(Deadline deadline) const;
  // Reads at most one frame. Releases the lock while it waits. `spin`: spin before sleeping. REQUIRES: !reading_.
  void Read(Deadline deadline, bool spin) AB_REQUIRES(mutex_);
  ReceiveOutcome Receive(Deadline deadline, bool spin, Frame& frame);
  void Dispatch(ReceiveOutcome outcome, Frame& frame) AB_REQUIRES(mutex_);
  // Another daemon has taken the session over: sends the requests without an answer again.
  void Resume(uint64_t number) AB_REQUIRES(mutex_);
  bool SendAgain(FrameHeader header, uint16_t flags, std::string_view payload, Deadline until) AB_REQUIRES(mutex_);
  void Deliver(Frame& frame) AB_REQUIRES(mutex_);
  void DeliverAnswer(Frame& frame) AB_REQUIRES(mutex_);
  void Advance(uint64_t request) AB_REQUIRES(mutex_);
  // Reads the frames that have arrived. Releases the lock.
  void ReadFrames() AB_REQUIRES(mutex_);
  // Runs the handlers of late_, unless another thread does. Releases the lock while a handler runs.
  void RunHandlers() AB_REQUIRES(mutex_);
  Result<Answer> AnswerOf(Frame& frame);
  // Null if no thread waits for this request.
  Waiter* FindWaiter(uint64_t request) AB_REQUIRES(mutex_);
  Waiter* TakeWaiter(uint64_t request) AB_REQUIRES(mutex_);
  void Lose(Status why) AB_REQUIRES(mutex_);
  // Called if the broker ended the connection and serves no further request of this session.
  void LoseByBroker(Status why) AB_REQUIRES(mutex_);

  UniqueFd socket_;
  const uint64_t nonce_;
  std::optional<std::chrono::milliseconds> broker_ahead_;
  Observer observer_;
  const Interrupted interrupted_;
  const std::chrono::microseconds spin_;
  const bool alone_;  // one processor only: the broker runs when this thread yields or sleeps
  std::atomic<bool> is_lost_{false};
  std::atomic<uint64_t> continued_{0};
  std::atomic<bool> memory_wanted_{false};
  std::atomic<uint64_t> next_request_{1};
  std::atomic<int64_t> last_look_{0};
  std::string queue_ns_;
  bool queue_offered_ = false;
  std::atomic<bool> queue_requested_{false};
  std::atomic<uint32_t> calls_{0};  // calls on the socket, before there is a queue
  std::unique_ptr<QueuePages> mapped_queue_;
  std::atomic<QueuePages*> queue_{nullptr};  // set once the broker takes requests from it
  SpinBackoff backoff_;                      // for one processor
  std::atomic<uint64_t> completed_{0};       // requests completed through the queue
  std::atomic<int64_t> noted_until_{0};      // waits that began before this time have been counted
  std::unique_ptr<std::byte[]> buffer_;      // of the thread that reads

  Mutex mutex_;
  ConditionVariable changed_;
  Status no_memory_ AB_GUARDED_BY(mutex_){Code::kResourceExhausted, "no memory for an answer of the broker"};
  bool reading_ AB_GUARDED_BY(mutex_) = false;
  uint64_t followers_ AB_GUARDED_BY(mutex_) = 0;
  Status why_lost_ AB_GUARDED_BY(mutex_);
  bool lost_by_broker_ AB_GUARDED_BY(mutex_) = false;
  Waiter* waiting_ AB_GUARDED_BY(mutex_) = nullptr;
  std::unordered_map<uint64_t, Unawaited> unawaited_ AB_GUARDED_BY(mutex_);
  std::deque<LateAnswer> late_ AB_GUARDED_BY(mutex_);  // in the order of the requests
  std::atomic<bool> has_late_{false};                  // late_ is not empty
  std::atomic<bool> has_frame_{false};                 // the answer to an unawaited request is on the socket
  bool handling_ AB_GUARDED_BY(mutex_) = false;        // a thread runs RunHandlers
  session_queue::Entry entry_ AB_GUARDED_BY(mutex_){};
  std::vector<Failed> failed_ AB_GUARDED_BY(mutex_);  // of unwaited publishes
};

}  // namespace arraybridge

// The Lifeline is the socket whose life is the session's life: requests go out, answers come back in any order. No
// thread of its own: whoever waits reads for all, by request id.
#pragma once

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

#include "client/fork_guard.h"
#include "client/queue_pages.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/spin_backoff.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

using Deadline = std::chrono::steady_clock::time_point;

struct Answer {
  std::string payload;
  UniqueFd descriptor;           // rides along with some
  std::vector<UniqueFd> more{};  // those after the first
};

// Thread-safe.
class Lifeline : public ForkParticipant {
 public:
  // Takes an answer that nobody waits for, or not any more: what it granted must be given back. Runs without a lock on
  // whichever thread reads, before later answers are read; must not wait for one.
  using Late = std::function<void(Result<Answer>)>;

  // Both peers asleep on two processors cost eight times a round trip in which they spin. Never without yielding: the
  // scheduler likes to put both on one processor.
  static constexpr std::chrono::microseconds kSpin{30};

  // Whether the thread that asks shall wait no longer. Asked ten times a second by each that waits, without a lock.
  using Interrupted = std::function<bool()>;

  // `address`: a directory with lifeline.sock in it, or a socket. UNAVAILABLE: nobody answers there.
  static Result<std::shared_ptr<Lifeline>> Connect(const std::string& address, Deadline deadline,
                                                   Interrupted interrupted = {},
                                                   std::chrono::microseconds spin = kSpin);
  explicit Lifeline(UniqueFd socket, Interrupted interrupted = {}, std::chrono::microseconds spin = kSpin);
  ~Lifeline() override;
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // One request, one answer. The broker's own error; DEADLINE_EXCEEDED, or CANCELLED when interrupted, with kUnanswered
  // as the reason if the broker may act on it yet, and the metadata kRequestKey if that changes what others find;
  // UNAVAILABLE when the connection is lost, with kNotSent as the reason if the broker cannot have seen the request.
  // An Allocate is waited for longer while the broker tells of progress: the deadline is as far away again then.
  Result<Answer> Call(Verb verb, std::string_view payload, Deadline deadline, const Late& late = {});
  // One request that nobody answers. Never waits: what the broker does not take now is an error.
  Status Post(Verb verb, std::string_view payload);
  // One request whose answer nobody waits for: it goes to `late`. Never waits, as Post.
  Status Ask(Verb verb, std::string_view payload, Late late);
  // Reads what has arrived, without waiting: late answers are given back by whoever calls this.
  void ReadArrived();

  // Requests state their deadlines from now on: the broker does not begin them later. `ahead`: of this process's clock
  // is the broker's, in another time namespace. REQUIRES: no other thread has the Lifeline yet.
  void StateDeadlines(std::chrono::milliseconds ahead) { broker_ahead_ = ahead; }
  // Called with every answer to a request that its caller had given up, before its Late. REQUIRES: as StateDeadlines.
  using Observer = std::function<void(uint64_t request, Verb verb, const Result<Answer>& answer)>;
  void ObserveLate(Observer observer) { observer_ = std::move(observer); }
  // Reads until the answer to a request that was given up has been handled, or the connection is lost.
  // DEADLINE_EXCEEDED, CANCELLED: it has not come.
  Status AwaitLate(uint64_t request, Deadline deadline);
  // What tells its requests from those of other Lifelines, of this process and of others.
  uint64_t nonce() const { return nonce_; }

  // The session may have a queue, whose unwaited publishes go to `ns`; it is opened after a few calls. REQUIRES: as
  // StateDeadlines.
  void OfferQueue(std::string ns) {
    queue_ns_ = std::move(ns);
    queue_offered_ = true;
  }
  // Opens the queue; waits for nothing.
  void WantQueue();
  // Requests go through the queue.
  bool has_queue() const { return queue_.load(std::memory_order_acquire) != nullptr; }
  struct Submitted {
    uint64_t request = 0;
    uint64_t end = 0;  // slots of the queue, up to and with this request
  };
  // Publishes without waiting for an answer. Never waits. Any error: nothing was sent.
  Result<Submitted> SubmitPublish(std::string_view message) AB_EXCLUDES(mutex_);
  struct Failed {
    uint64_t request;
    Status why;
  };
  struct Confirmed {
    uint64_t served = 0;         // slots of the queue: the publishes up to here are dealt with
    std::vector<Failed> failed;  // since the last time, in order
  };
  Confirmed TakeConfirmed() AB_EXCLUDES(mutex_);

  // Not lost; asks the kernel at most once a tick of its clock. For those who send nothing.
  bool alive();
  // For who polls for its end, and reads nothing.
  int socket() const { return socket_.get(); }
  bool lost() const { return is_lost_.load(std::memory_order_acquire); }
  // The broker speaks nonsense: the connection ends, and with it whatever it granted.
  void Break(Status why) {
    MutexLock lock(mutex_);
    Lose(std::move(why));
  }
  // Somebody waits for memory. Taken: true once since the broker last said so.
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

 private:
  // Lies on its caller's stack and in the list of those who wait.
  struct Waiter {
    Verb verb() const { return Verb{header.verb}; }

    FrameHeader header;
    std::optional<Deadline::duration> patience{};  // that progress gives anew; nothing: it has none
    bool advanced = false;                         // since somebody looked
    Waiter* next = nullptr;
    std::optional<Result<Answer>> answer{};
    std::atomic<bool> done{false};       // the answer is there; the Waiter is in no list any more
    std::atomic<bool> on_socket{false};  // the answer is a frame
  };
  struct Unawaited {
    Verb verb;
    Late late;
    bool given_up;         // by its caller; otherwise it was asked so
    bool arrived = false;  // it stands in late_, or is being handled
  };
  struct LateAnswer {
    uint64_t request;
    Unawaited of;
    Result<Answer> answer;
  };

  // So often a waiting thread looks whether it is interrupted. On one processor recvmsg itself waits, in steps of this;
  // it returns early enough for the deadline to be kept.
  static constexpr std::chrono::milliseconds kBlock{100};
  static int Milliseconds(Deadline deadline);
  static Status Cancelled();

  // Known before it is asked: the answer may come, read by another thread, before send returns.
  Status Enter(Waiter& waiter);
  Status Send(Waiter& waiter, std::string_view payload, Deadline deadline);
  // A frame, or an unwaited request in the queue. Never waits.
  Status SendUnawaited(const FrameHeader& header, std::string_view payload) AB_EXCLUDES(mutex_);
  FrameHeader HeaderOf(Verb verb, Deadline deadline);
  static Status TooLarge(size_t bytes);
  // Waits until the socket takes more. DEADLINE_EXCEEDED, CANCELLED.
  Status AwaitWritable(Deadline deadline);
  // The queue (lifeline_queue.cc).
  struct Request {
    const FrameHeader& header;
    uint8_t flags;  // of the entry, beside those of the header
    std::string_view payload;
    std::optional<Deadline> deadline;  // none: it must not wait for room
    Waiter* waiter;                    // none: nobody waits for the answer
  };
  struct Turn {
    Deadline begun;
    uint64_t completed;
  };
  void CountCall();
  void MapQueue(const Result<Answer>& answer);
  Result<Answer> CallByQueue(QueuePages& queue, Waiter& waiter, std::string_view payload, Deadline deadline,
                             const Late& late);
  // The slots of the queue up to and with this request. Any error: nothing was sent.
  Result<uint64_t> Submit(QueuePages& queue, const Request& request) AB_EXCLUDES(mutex_);
  SendOutcome SendQueued(const Request& request) AB_REQUIRES(mutex_);
  void SendDoorbell(QueuePages& queue, std::optional<Deadline> deadline) AB_EXCLUDES(mutex_);
  // `slots`: of the queue; 0: of the socket. The lock is free meanwhile.
  Status AwaitRoom(QueuePages& queue, uint64_t slots, std::optional<Deadline> deadline) AB_REQUIRES(mutex_);
  Status ReadUntilRoom(QueuePages& queue, uint64_t slots, Deadline deadline) AB_REQUIRES(mutex_);
  void Reap(QueuePages& queue) AB_REQUIRES(mutex_);
  bool Spin(QueuePages& queue, const Waiter& waiter, const Turn& turn) AB_EXCLUDES(mutex_);
  void NoteTurn(const Turn& turn, Deadline now);
  // Announces that this process sleeps. False: something came.
  bool MaySleep(QueuePages& queue) AB_REQUIRES(mutex_);
  // A deadline that is not given has passed: nothing is waited for.
  Status SendFrameUntil(const FrameHeader& header, std::string_view payload, std::optional<Deadline> deadline);
  Result<Answer> Await(Waiter& waiter, Deadline deadline, const Late& late) AB_REQUIRES(mutex_);
  // Reads, or waits for the thread that does, until `is_over`, which is asked with the lock held and may move the
  // deadline. OK: it is over, or the connection is lost; DEADLINE_EXCEEDED, CANCELLED.
  template <class IsOver>
  Status ReadUntil(const Deadline& deadline, const IsOver& is_over) AB_REQUIRES(mutex_);
  Status GiveUp(Waiter& waiter, const Late& late, Status why) AB_REQUIRES(mutex_);
  // The lock is free meanwhile.
  bool IsInterrupted() AB_REQUIRES(mutex_);
  // How long to sleep at most before somebody asks whether this thread is interrupted.
  Deadline Step(Deadline deadline) const;
  // One frame at most; the lock is free meanwhile. `spin`: before it sleeps. REQUIRES: !reading_.
  void Read(Deadline deadline, bool spin) AB_REQUIRES(mutex_);
  ReceiveOutcome Receive(Deadline deadline, bool spin, Frame& frame);
  ReceiveOutcome ReceiveAlone(Deadline deadline, Frame& frame);
  void Dispatch(ReceiveOutcome outcome, Frame& frame) AB_REQUIRES(mutex_);
  void Deliver(Frame& frame) AB_REQUIRES(mutex_);
  void Advance(uint64_t request) AB_REQUIRES(mutex_);
  // Handles what stands in late_, unless another thread does; the lock is free meanwhile.
  void RunLate() AB_REQUIRES(mutex_);
  Result<Answer> AnswerOf(Frame& frame);
  // Null if nobody waits for this request (any more).
  Waiter* FindWaiter(uint64_t request) AB_REQUIRES(mutex_);
  Waiter* TakeWaiter(uint64_t request) AB_REQUIRES(mutex_);
  void Lose(Status why) AB_REQUIRES(mutex_);
  // The broker ended it: it does nothing more for this session.
  void LoseByBroker(Status why) AB_REQUIRES(mutex_);

  UniqueFd socket_;
  const uint64_t nonce_;
  std::optional<std::chrono::milliseconds> broker_ahead_;
  Observer observer_;
  const Interrupted interrupted_;
  const std::chrono::microseconds spin_;
  const bool alone_;  // this process has one processor: the broker answers when this thread yields or sleeps
  std::atomic<bool> is_lost_{false};
  std::atomic<bool> memory_wanted_{false};
  std::atomic<uint64_t> next_request_{1};
  std::atomic<int64_t> last_look_{0};
  std::string queue_ns_;
  bool queue_offered_ = false;
  std::atomic<bool> queue_asked_{false};
  std::atomic<uint32_t> calls_{0};  // by the socket, as long as there is no queue
  std::unique_ptr<QueuePages> mapped_queue_;
  std::atomic<QueuePages*> queue_{nullptr};  // once the broker takes requests from it
  SpinBackoff backoff_;                      // of one processor
  std::atomic<uint64_t> completed_{0};       // requests, through the queue
  std::atomic<int64_t> noted_until_{0};      // by NoteTurn: waits that began earlier have been counted
  std::unique_ptr<std::byte[]> buffer_;      // of the one who reads

  Mutex mutex_;
  ConditionVariable changed_;
  bool reading_ AB_GUARDED_BY(mutex_) = false;
  uint64_t followers_ AB_GUARDED_BY(mutex_) = 0;
  Status why_lost_ AB_GUARDED_BY(mutex_);
  bool lost_by_broker_ AB_GUARDED_BY(mutex_) = false;
  Waiter* waiting_ AB_GUARDED_BY(mutex_) = nullptr;
  std::unordered_map<uint64_t, Unawaited> unawaited_ AB_GUARDED_BY(mutex_);
  std::deque<LateAnswer> late_ AB_GUARDED_BY(mutex_);  // in order
  std::atomic<bool> has_late_{false};                  // it is not empty
  std::atomic<bool> has_frame_{false};                 // the socket has the answer to an unawaited request
  bool handling_ AB_GUARDED_BY(mutex_) = false;        // a thread is in RunLate
  session_queue::Entry entry_ AB_GUARDED_BY(mutex_){};
  std::vector<Failed> failed_ AB_GUARDED_BY(mutex_);  // unwaited publishes
};

}  // namespace arraybridge

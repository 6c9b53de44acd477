// SPDX-License-Identifier: Apache-2.0
// The LocalDoor serves all lifelines on one thread: it receives frames, calls verbs and sends frames. It does not
// interpret the bytes of arrays. It cuts clients that violate the frame's rules, send no hello, or do not read.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/service/lifeline/descriptors_in_flight.h"
#include "daemon/service/lifeline/lifeline.h"
#include "daemon/service/system/listener.h"
#include "daemon/service/telemetry/log_throttle.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/spin_backoff.h"

namespace arraybridge::daemon {

class LocalDoor {
 public:
  LocalDoor(const Config& config, Verbs& verbs);
  // Ends every remaining session (EndCause::kDrain).
  ~LocalDoor();

  // Thread-safe. Limits.connections_per_uid: answers with an error frame.
  void Adopt(Connection connection) AB_EXCLUDES(mutex_);
  // Thread-safe. The lifeline of a session that Broker::Recover has returned.
  void Resume(Connection connection, SessionId session) AB_EXCLUDES(mutex_);
  // Thread-safe. Runs the task on the thread of all lifelines.
  void Post(std::function<void()> task) AB_EXCLUDES(mutex_);

 private:
  // Time limit of one kind of events in a turn: sockets, or queues.
  static constexpr std::chrono::microseconds kTurn{1000};
  using LifelinePointer = std::shared_ptr<Lifeline>;
  // One user's lifelines. It stays until the last of the user's descriptors was read, or its reader's process has
  // ended.
  struct User {
    uint64_t lifelines = 0;
    std::shared_ptr<DescriptorsInFlight> in_flight;
  };

  void Run();
  int WaitForEvents(bool busy, std::span<epoll_event> events);
  // Milliseconds until a hello is due or a socket is to be retried; -1: neither.
  int TimeoutMs() const;
  // Serves users in turn, and of each user the lifeline that was served least recently, for at most kTurn. The next
  // epoll_wait reports the rest again.
  void ServeEvents(std::span<const epoll_event> events);
  // Retries sockets that accepted nothing although they were writable.
  void RetryBlocked();
  void Flush(const LifelinePointer& line);
  void RunPosted() AB_EXCLUDES(mutex_);
  LifelinePointer Add(Connection connection);
  // False: the lifeline has ended.
  bool Watch(const LifelinePointer& line);
  void Admit(Connection connection);
  bool AwaitsHello(uint64_t key) const;
  void CutLateHellos();
  void HandleEvent(uint64_t tag, uint32_t events);
  // False: there is nothing more to read for now.
  bool ServeOne(const LifelinePointer& line);
  // Handles every outcome except kFrame.
  ReceiveOutcome Receive(const LifelinePointer& line, Frame* frame);
  void Serve(const LifelinePointer& line, const Frame& frame);
  void Violation(const LifelinePointer& line, const FrameHeader& header, const Status& status);
  void Refuse(const LifelinePointer& line, const FrameHeader& header, const Status& status);
  void Count(const FrameHeader& header, Code code);
  void End(const LifelinePointer& line, EndCause cause);
  void ForgetUsers();
  void Cut(SessionId session, std::string_view why);

  // Requests in frames (local_door_verbs.cc).
  void ServeHello(const LifelinePointer& line, const Frame& frame);
  void ServeVerb(const LifelinePointer& line, const Frame& frame);
  // Undoes a grant whose answer could not be sent.
  void TakeBack(SessionId session, Verb verb, std::string_view answer);
  // Answers a request later, on any thread, perhaps after the client is gone.
  Reply ReplyTo(const LifelinePointer& line, const Frame& frame);
  void Respond(const LifelinePointer& line, const Frame& frame, Result<Answer> answer);

  // Sessions that another daemon served (local_door_resume.cc).
  void Continue(Connection connection, SessionId session);
  void OnResumed(const LifelinePointer& line, const Frame& frame);
  void EndResuming(const LifelinePointer& line);
  bool IsOverdueNow(const FrameHeader& request) const;
  // Whether the request, which came on the socket, was served before, or has been answered here.
  bool IsAnsweredAgain(const LifelinePointer& line, const Frame& frame);
  // Whether the entry need not be served: it is older than the resumption, and has been served since.
  bool IsServedAlready(const LifelinePointer& line, const session_queue::Header& header);

  // Session queues (local_door_queues.cc).
  Result<Answer> QueueMapped(const LifelinePointer& line);
  void OnDoorbell(const LifelinePointer& line, const Frame& frame);
  // Stores a frame that belongs to an entry of the queue.
  void Keep(const LifelinePointer& line, const Frame& frame);
  bool ReadKept(const LifelinePointer& line);
  // From now on the loop polls the lifeline's queue.
  void Poll(const LifelinePointer& line);
  bool HasPending() const;
  // Polls for about the time of a system call, if a client may write meanwhile.
  bool HasPendingSoon() const;
  // Whether to poll again before sleeping. On one processor the clients decide whether yielding is worth it; on several
  // the loop does.
  bool PollsAgain();
  // Serves a few requests of each queue. Returns whether there were any.
  bool ServeQueues();
  // Serves at most kRequestsPerTurnMax, for at most the time of a turn.
  void ServeQueue(const LifelinePointer& line);
  // Serves the request that was copied to entry_.
  void ServeEntry(const LifelinePointer& line);
  // Stops polling the lifelines for which `quiet` is true, unless their queues have entries; they wake the loop from
  // now on.
  void LetSleep(const std::function<bool(const Lifeline&)>& quiet);
  bool FallAsleep();

  const Config& config_;
  Verbs& verbs_;
  const Lifeline::Undelivered undelivered_;
  UniqueFd epoll_;
  UniqueFd wake_;
  const bool has_several_cpus_;
  unsigned looks_ = 0;             // successful polls since the sockets were last looked at
  Clock::time_point looked_at_;    // when the sockets were last looked at
  Clock::time_point yielded_at_;   // the end of the last yield
  Clock::time_point yields_from_;  // no yields before this time, because other threads need the processor
  uint64_t turn_ = 0;
  uint32_t first_user_ = 0;  // the user whose turn is first
  // Lifelines by the time of their next flush.
  std::multimap<Clock::time_point, uint64_t> blocked_;
  std::vector<std::byte> buffer_;
  uint64_t last_key_ = 0;
  Clock::time_point begun_;    // arrival of the request that is being served
  Traffic::InFlight serving_;  // until the request is answered or waits
  LogThrottle violations_;
  std::unordered_map<uint64_t, LifelinePointer> lifelines_;
  std::unordered_map<uint32_t, User> of_uid_;
  // In the order of arrival, which is the order of their deadlines.
  std::deque<std::pair<Clock::time_point, uint64_t>> hellos_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ AB_GUARDED_BY(mutex_);
  size_t next_polled_ = 0;               // where the last turn through polled_ ended
  std::vector<LifelinePointer> polled_;  // lifelines whose queues the loop polls
  session_queue::Entry entry_{};         // the request that is being served
  uint64_t entry_end_ = 0;               // slots of its queue up to it and with it
  SpinBackoff backoff_;                  // used on several processors
  std::thread thread_;                   // last: it uses all of the above
};

}  // namespace arraybridge::daemon

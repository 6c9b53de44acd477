// The LocalDoor serves every lifeline on one thread: frames in, verbs, frames out. It decides nothing about bytes; it
// cuts who breaks the frame's rules, who says nothing, and who does not read.
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

namespace arraybridge {

struct LocalDoorRequests;

class LocalDoor {
 public:
  LocalDoor(const Config& config, Verbs& verbs);
  // Ends every session that is left (EndCause::kDrain).
  ~LocalDoor();
  LocalDoor(const LocalDoor&) = delete;
  LocalDoor& operator=(const LocalDoor&) = delete;

  // Thread-safe. Refused with an error frame: limits.connections_per_uid.
  void Adopt(Connection connection) AB_EXCLUDES(mutex_);
  // Thread-safe. Runs it on the thread of all lifelines.
  void Post(std::function<void()> task) AB_EXCLUDES(mutex_);

 private:
  // How long one kind of events keeps the others waiting: sockets, and what is watched.
  static constexpr std::chrono::microseconds kTurn{1000};
  using LifelinePointer = std::shared_ptr<Lifeline>;
  // What one user has here. It stays until the last of its descriptors was read, or its process has gone.
  struct User {
    uint64_t lifelines = 0;
    std::shared_ptr<DescriptorsInFlight> in_flight;
  };

  void Run();
  int WaitForEvents(bool busy, std::span<epoll_event> events);
  // Milliseconds until a hello is due or a socket is to be tried again; -1: there is neither.
  int TimeoutMs() const;
  // Users in turn, of each the lifeline that was served least recently, until the turn has taken kTurn: what is left is
  // told again by the next epoll_wait.
  void ServeEvents(std::span<const epoll_event> events);
  // Sockets whose buffers the kernel could not fill when they said that they could take more.
  void RetryBlocked();
  void Flush(const LifelinePointer& line);
  void RunPosted() AB_EXCLUDES(mutex_);
  void Admit(Connection connection);
  bool AwaitsHello(uint64_t key) const;
  void CutLateHellos();
  void HandleEvent(uint64_t tag, uint32_t events);
  // False: nothing more to read for now.
  bool ServeOne(const LifelinePointer& line);
  // Any but kFrame has been dealt with.
  ReceiveOutcome Receive(const LifelinePointer& line, Frame* frame);
  void Serve(const LifelinePointer& line, const Frame& frame);
  void Violation(const LifelinePointer& line, const FrameHeader& header, const Status& status);
  void Refuse(const LifelinePointer& line, const FrameHeader& header, const Status& status);
  void Count(const FrameHeader& header, Code code);
  void End(const LifelinePointer& line, EndCause cause);
  void ForgetUsers();
  void Cut(SessionId session, std::string_view why);

  // What a frame asks for (local_door_verbs.cc).
  void ServeHello(const LifelinePointer& line, const Frame& frame);
  void ServeVerb(const LifelinePointer& line, const Frame& frame);
  // What was answered has not come to who asked for it.
  void TakeBack(SessionId session, Verb verb, std::string_view answer);
  template <class Message>
  bool Parse(const LifelinePointer& line, const Frame& frame, Message* message);
  template <class Request, class Noun, class Verb>
  void Now(const LifelinePointer& line, const Frame& frame, Request* request, Noun& noun, Verb verb);
  // REQUIRES: `request` is parsed.
  template <class Response, class Request, class Noun, class Verb>
  void Later(const LifelinePointer& line, const Frame& frame, Request& request, Noun& noun, Verb verb);
  void Acquire(const LifelinePointer& line, const Frame& frame);
  void Receive(const LifelinePointer& line, const Frame& frame);
  void Publish(const LifelinePointer& line, const Frame& frame);
  void Mapped(const LifelinePointer& line, const Frame& frame);
  template <class Message>
  void Respond(const LifelinePointer& line, const Frame& frame, Result<Answer<Message>> answer);

  // Session queues (local_door_queues.cc).
  Result<Answer<v1::MappedResponse>> QueueMapped(const LifelinePointer& line);
  void OnDoorbell(const LifelinePointer& line, const Frame& frame);
  // A frame that belongs to an entry of the queue.
  void Keep(const LifelinePointer& line, const Frame& frame);
  bool ReadKept(const LifelinePointer& line);
  // The loop looks into its queue by itself from now on.
  void Poll(const LifelinePointer& line);
  bool HasPending() const;
  // Looks for as long as a system call takes, if a client may write meanwhile.
  bool HasPendingSoon() const;
  // Whether to look again before sleeping. On one processor the clients know whether to yield is worth it, on several
  // the loop does.
  bool PollsAgain();
  // A few requests of each queue. Whether there were any.
  bool ServeQueues();
  // At most kRequestsPerTurnMax, and no more after a turn's time.
  void ServeQueue(const LifelinePointer& line);
  // The request that was copied to entry_.
  void ServeEntry(const LifelinePointer& line);
  // Those for which `quiet` is true wake the loop from now on, unless something stands in their queues.
  void LetSleep(const std::function<bool(const Lifeline&)>& quiet);
  bool FallAsleep();

  const Config& config_;
  Verbs& verbs_;
  const Lifeline::Undelivered undelivered_;
  UniqueFd epoll_;
  UniqueFd wake_;
  const bool has_several_cpus_;
  unsigned looks_ = 0;             // that found something, since the sockets were looked at
  Clock::time_point looked_at_;    // when they were
  Clock::time_point yields_from_;  // until then to yield is to wait for others who need the processor
  uint64_t turn_ = 0;
  uint32_t first_user_ = 0;  // whose turn it is first
  // Lifelines by when they are to be flushed again.
  std::multimap<Clock::time_point, uint64_t> blocked_;
  std::unique_ptr<LocalDoorRequests> requests_;
  std::vector<std::byte> buffer_;
  uint64_t last_key_ = 0;
  Clock::time_point begun_;    // when what is being served came
  Traffic::InFlight serving_;  // until it is answered, or waits
  LogThrottle violations_;
  std::unordered_map<uint64_t, LifelinePointer> lifelines_;
  std::unordered_map<uint32_t, User> of_uid_;
  // In the order they came, which is the order in which they are due.
  std::deque<std::pair<Clock::time_point, uint64_t>> hellos_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ AB_GUARDED_BY(mutex_);
  size_t next_polled_ = 0;               // where the last turn through them came to
  std::vector<LifelinePointer> polled_;  // whose queues the loop looks into by itself
  session_queue::Entry entry_{};         // the request that is being served
  SpinBackoff backoff_;                  // of several processors
  std::thread thread_;                   // last: it uses all of the above
};

}  // namespace arraybridge

// The LocalDoor serves every lifeline: frames in, verbs, frames out. It decides nothing about bytes; it cuts who breaks
// the frame's rules, who says nothing, and who does not read. One thread, the loop, waits for all of them; a second
// one, the lane, for the one that is the only one to say anything. Whichever serves has the turn.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/config.h"
#include "daemon/service/descriptors_in_flight.h"
#include "daemon/service/lifeline.h"
#include "daemon/service/listener.h"
#include "daemon/service/log_throttle.h"
#include "daemon/service/verbs.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

class LocalDoor {
 public:
  LocalDoor(const Config& config, Verbs& verbs);
  // Ends every session that is left (EndCause::kDrain).
  ~LocalDoor();
  LocalDoor(const LocalDoor&) = delete;
  LocalDoor& operator=(const LocalDoor&) = delete;

  // Thread-safe. Refused with an error frame: limits.connections_per_uid.
  void Adopt(Connection connection) AB_EXCLUDES(mutex_);
  // Thread-safe. Runs it on the loop.
  void Post(std::function<void()> task) AB_EXCLUDES(mutex_);
  // Thread-safe. How many frames the lane has received.
  uint64_t served_in_lane() const { return served_in_lane_.load(std::memory_order_relaxed); }

 private:
  struct Requests;
  using LifelinePointer = std::shared_ptr<Lifeline>;
  // What one user has here. It stays until the last of its descriptors was read, or its process has gone.
  struct User {
    uint64_t lifelines = 0;
    std::shared_ptr<DescriptorsInFlight> in_flight;
  };

  void Run();
  int WaitForEvents(bool busy, std::span<epoll_event> events) AB_REQUIRES(turn_);
  void RunPosted() AB_EXCLUDES(mutex_) AB_REQUIRES(turn_);
  void Admit(Connection connection) AB_REQUIRES(turn_);
  bool AwaitsHello(uint64_t key) const AB_REQUIRES(turn_);
  void CutLateHellos() AB_REQUIRES(turn_);
  void HandleEvent(uint64_t tag, uint32_t events) AB_REQUIRES(turn_);
  int Wait(std::span<epoll_event> events, int timeout_ms) AB_REQUIRES(turn_);
  // False: nothing more to read for now.
  bool ServeOne(const LifelinePointer& line) AB_REQUIRES(turn_);
  bool Received(const LifelinePointer& line, ReceiveOutcome outcome, Frame& frame) AB_REQUIRES(turn_);
  void ProcessEnded(const LifelinePointer& line) AB_REQUIRES(turn_);
  void Serve(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  void Violation(const LifelinePointer& line, const FrameHeader& header, const Status& status) AB_REQUIRES(turn_);
  void Refuse(const LifelinePointer& line, const FrameHeader& header, const Status& status) AB_REQUIRES(turn_);
  void Count(const FrameHeader& header, Code code) AB_REQUIRES(turn_);
  void End(const LifelinePointer& line, EndCause cause) AB_REQUIRES(turn_);
  void ForgetUsers() AB_REQUIRES(turn_);
  void Cut(SessionId session, std::string_view why) AB_REQUIRES(turn_);

  // What a frame asks for (local_door_verbs.cc).
  void ServeHello(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  void ServeVerb(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  // What was answered has not come to who asked for it. Thread-safe.
  void TakeBack(SessionId session, Verb verb, std::string_view answer);
  template <class Message>
  bool Parse(const LifelinePointer& line, const Frame& frame, Message* message) AB_REQUIRES(turn_);
  template <class Request, class Verb>
  void Now(const LifelinePointer& line, const Frame& frame, Request* request, Verb verb) AB_REQUIRES(turn_);
  // REQUIRES: `request` is parsed.
  template <class Response, class Request, class Verb>
  void Later(const LifelinePointer& line, const Frame& frame, Request& request, Verb verb) AB_REQUIRES(turn_);
  void Acquire(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  void Receive(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  void Publish(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  void Mapped(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  template <class Message>
  void Tell(const LifelinePointer& line, const Frame& frame, Result<Answer<Message>> answer) AB_REQUIRES(turn_);

  // Publish rings.
  void Knocked(const LifelinePointer& line, const Frame& frame) AB_REQUIRES(turn_);
  // It was told that there is something in the ring.
  void Watch(const LifelinePointer& line) AB_REQUIRES(turn_);
  bool RingsPending() const AB_REQUIRES(turn_);
  // A few entries of each ring that is watched. Whether there were any.
  bool DrainWatched() AB_REQUIRES(turn_);
  // From now on their sessions wake the loop. False: there is something already.
  bool FallAsleep() AB_REQUIRES(turn_);

  // The lane (local_door_lane.cc). Where it cannot be started the loop serves everybody.
  void StartLane();
  void RunLane() AB_EXCLUDES(turn_);
  ReceiveOutcome ReceiveInLane(const Lifeline& line, std::span<std::byte> buffer, Frame* frame) AB_REQUIRES(turn_);
  // After each turn of the loop that something happened in.
  void ConsiderLane(std::span<const epoll_event> events) AB_REQUIRES(turn_);
  void EnterLane(const LifelinePointer& line) AB_REQUIRES(turn_);
  void LeaveLane() AB_REQUIRES(turn_);

  const Config& config_;
  Verbs& verbs_;
  const Lifeline::Undelivered undelivered_;
  UniqueFd epoll_;
  UniqueFd wake_;
  const bool spins_;  // then there is no lane
  std::atomic<bool> stopping_{false};
  Mutex turn_;
  std::unique_ptr<Requests> requests_ AB_GUARDED_BY(turn_);
  std::vector<std::byte> buffer_ AB_GUARDED_BY(turn_);
  uint64_t last_key_ AB_GUARDED_BY(turn_) = 0;
  Clock::time_point begun_ AB_GUARDED_BY(turn_);    // when what is being served came
  Traffic::InFlight serving_ AB_GUARDED_BY(turn_);  // until it is answered, or waits
  LogThrottle violations_ AB_GUARDED_BY(turn_);
  std::unordered_map<uint64_t, LifelinePointer> lifelines_ AB_GUARDED_BY(turn_);
  std::unordered_map<uint32_t, User> of_uid_ AB_GUARDED_BY(turn_);
  // In the order they came, which is the order in which they are due.
  std::deque<std::pair<Clock::time_point, uint64_t>> hellos_ AB_GUARDED_BY(turn_);
  std::vector<LifelinePointer> watched_ AB_GUARDED_BY(turn_);  // whose rings the loop looks into by itself

  LifelinePointer in_lane_ AB_GUARDED_BY(turn_);
  UniqueFd lane_socket_ AB_GUARDED_BY(turn_);  // the lane's own: who ends the lifeline closes the other
  uint64_t sole_tag_ AB_GUARDED_BY(turn_) = 0;
  int sole_turns_ AB_GUARDED_BY(turn_) = 0;  // of the loop, in which nothing but this happened
  ConditionVariable lane_given_;
  ConditionVariable lane_had_turn_;
  std::atomic<bool> lane_waits_{false};  // for the turn
  std::atomic<bool> loop_waits_{false};
  std::atomic<uint64_t> served_in_lane_{0};

  Mutex mutex_;
  std::vector<std::function<void()>> posted_ AB_GUARDED_BY(mutex_);
  std::thread lane_;    // none where the loop spins
  std::thread thread_;  // last: they use all of the above
};

}  // namespace arraybridge

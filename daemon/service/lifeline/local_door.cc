// SPDX-License-Identifier: Apache-2.0
// A frame costs one epoll_wait, one recvmsg and one sendmsg. After a busy turn the loop polls for a moment before it
// sleeps, and yields meanwhile: on two CPUs the wake-up is most of a round trip. On one CPU it polls only if there are
// session queues: a yield is enough for a client to write its next request there, while a frame costs two more system
// calls than a sleep saves.
#include "daemon/service/lifeline/local_door.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>

#include "daemon/service/system/closer.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kEventsMax = 1024;    // the number of sessions: turns between users need all events
constexpr int kFramesPerTurnMax = 16;  // then the next lifeline has its turn
constexpr unsigned kLooksMax = 16;     // looks into session queues before the sockets have their turn
constexpr std::chrono::microseconds kSocketsWithin{100};  // the same bound as a time
// A longer yield, without the turns of the clients, means that other threads need the processor.
constexpr std::chrono::microseconds kLongYield{200};
constexpr std::chrono::microseconds kClientTurn{10};
// A client that the loop has woken on its own processor runs when the loop yields, and clients of other processors may
// keep the loop busy for ever.
constexpr std::chrono::microseconds kYieldsWithin{400};
constexpr std::chrono::milliseconds kYieldPause{5};  // no yields for this time after a long one
constexpr int kLastFramesMax = 1024;                 // frames of a dead process that are still served
// Lifelines start at key 1. Tag 2 * key is a lifeline's socket, 2 * key + 1 its process.
constexpr uint64_t kWakeTag = 0;

bool HasSeveralCpus() {
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1;
}

bool HasInput(int socket) {
  pollfd look{socket, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & POLLIN) != 0;
}

log::About AboutCut(const Peer& peer, uint64_t session, std::string_view reason) {
  return {log::Topic::kLifelineCut,
          {{"uid", std::to_string(peer.uid)},
           {"process_id", std::to_string(peer.process_id)},
           {"session", std::to_string(session)},
           {"reason", std::string(reason)}}};
}

// The caller was told that the deadline had passed, so the request must not be executed any more.
bool IsOverdue(const FrameHeader& request, Clock::time_point now) {
  return (request.flags & kFrameDeadline) != 0 && IsDeadlinePast(request.status, InMilliseconds(now));
}

// A received descriptor is an untrusted peer's file; closing it may block as long as the peer wants.
void CloseAll(Frame& frame) {
  CloseAside(std::move(frame.descriptor));
  for (UniqueFd& descriptor : frame.more) CloseAside(std::move(descriptor));
}

}  // namespace

LocalDoor::LocalDoor(const Config& config, Verbs& verbs)
    : config_(config),
      verbs_(verbs),
      undelivered_([this](SessionId session, Verb verb, std::string_view answer) { TakeBack(session, verb, answer); }),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      has_several_cpus_(HasSeveralCpus()),
      buffer_(kFrameBytesMax) {
  AB_CHECK(epoll_.valid() && wake_.valid());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeTag;
  AB_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) == 0);
  verbs_.cuts().Set(Door::kLifeline, [this](SessionId session, std::string_view why) {
    Post([this, session, why = std::string(why)] { Cut(session, why); });
  });
  thread_ = std::thread([this] { Run(); });
}

LocalDoor::~LocalDoor() {
  verbs_.cuts().Set(Door::kLifeline, {});
  stopping_.store(true);
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
  while (!lifelines_.empty()) End(LifelinePointer(lifelines_.begin()->second), EndCause::kDrain);
}

void LocalDoor::Adopt(Connection connection) {
  // Shared, because a task must be copyable and a connection is not.
  Post([this, held = std::make_shared<Connection>(std::move(connection))] { Admit(std::move(*held)); });
}

void LocalDoor::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    posted_.push_back(std::move(task));
  }
  ::eventfd_write(wake_.get(), 1);
}

void LocalDoor::Run() {
  ::pthread_setname_np(::pthread_self(), "ab-lifelines");
  std::array<epoll_event, kEventsMax> events;
  bool busy = false;
  while (!stopping_.load()) {
    const int count = WaitForEvents(busy && PollsAgain(), events);
    ServeEvents(std::span(events).first(static_cast<size_t>(count)));
    CutLateHellos();
    RetryBlocked();
    const bool served = ServeQueues();
    busy = count > 0 || served;
  }
}

// Sleeps until an event or a deadline. If other threads need the processor, a yield takes long, while a sleep in
// epoll_wait ends with the next frame. After a long yield the loop does not yield for a while.
int LocalDoor::WaitForEvents(bool busy, std::span<epoll_event> events) {
  const int most = static_cast<int>(events.size());
  const auto look = [&](int timeout_ms) {
    looks_ = 0;
    const int count = ::epoll_wait(epoll_.get(), events.data(), most, timeout_ms);
    looked_at_ = Clock::now();
    return std::max(count, 0);
  };
  auto now = busy ? Clock::now() : Clock::time_point{};
  const auto until = now + config_.spin;
  while (busy && now >= yields_from_ && now < until) {
    Clock::duration yielded{};
    if (now - yielded_at_ >= kYieldsWithin || !HasPendingSoon()) {
      ::sched_yield();
      const auto after = Clock::now();
      yielded = after - now - polled_.size() * kClientTurn;
      if (yielded > kLongYield) yields_from_ = after + kYieldPause;
      now = yielded_at_ = after;
    }
    const bool stands = HasPending();
    if (stands) backoff_.Waited(yielded);  // the time that a client waited
    if (stands && ++looks_ < kLooksMax && now - looked_at_ < kSocketsWithin) return 0;
    const int count = look(0);
    if (count != 0 || stands) return count;
    now = looked_at_;
  }
  if (HasPending() || !FallAsleep()) return look(0);
  return look(TimeoutMs());
}

int LocalDoor::TimeoutMs() const {
  auto due = Clock::time_point::max();
  if (!hellos_.empty()) due = hellos_.front().first;
  if (!blocked_.empty()) due = std::min(due, blocked_.begin()->first);
  if (due == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600'000));
}

void LocalDoor::RunPosted() {
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  std::vector<std::function<void()>> posted;
  {
    MutexLock lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& task : posted) task();
}

LocalDoor::LifelinePointer LocalDoor::Add(Connection connection) {
  const uint64_t key = ++last_key_;
  User& user = of_uid_[connection.peer.uid];
  if (!user.in_flight) user.in_flight = std::make_shared<DescriptorsInFlight>(config_.limits, epoll_.get());
  auto line = std::make_shared<Lifeline>(key, std::move(connection), config_.limits, epoll_.get(), user.in_flight,
                                         undelivered_, verbs_.counts().traffic);
  ++user.lifelines;
  lifelines_.emplace(key, line);
  return line;
}

void LocalDoor::Admit(Connection connection) {
  const LifelinePointer line = Add(std::move(connection));
  const uint64_t others = of_uid_.at(line->peer().uid).lifelines - 1;
  if (others >= config_.limits.connections_per_uid()) {
    begun_ = Clock::now();
    Refuse(
        line, FrameHeader{static_cast<uint16_t>(Verb::kOpenSession), 0, 0, 0},
        ResourceExhausted("user ", line->peer().uid, " has ", others, " connections, twice limits.sessions_per_uid (",
                          config_.limits.sessions_per_uid, "): close some")
            .Because("CONNECTIONS"));
    return End(line, EndCause::kLimit);
  }
  if (Watch(line)) hellos_.emplace_back(Clock::now() + config_.limits.hello_timeout, line->key());
}

bool LocalDoor::Watch(const LifelinePointer& line) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 2 * line->key();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, line->socket(), &event) != 0) return End(line, EndCause::kLimit), false;
  event.data.u64 = 2 * line->key() + 1;
  // Without a pidfd only the end of the stream ends the session.
  if (line->process() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, line->process(), &event);
  return true;
}

bool LocalDoor::AwaitsHello(uint64_t key) const {
  const auto found = lifelines_.find(key);
  return found != lifelines_.end() && !found->second->session;
}

void LocalDoor::CutLateHellos() {
  while (!hellos_.empty() && hellos_.front().first <= Clock::now()) {
    const uint64_t key = hellos_.front().second;
    hellos_.pop_front();
    if (!AwaitsHello(key)) continue;
    const LifelinePointer line = lifelines_.at(key);
    // A hello that came in time may still be unread: this process was paused, or its turns are full.
    if (HasInput(line->socket())) {
      hellos_.emplace_back(Clock::now() + config_.limits.hello_timeout, key);
      continue;
    }
    begun_ = Clock::now();
    Refuse(line, FrameHeader{static_cast<uint16_t>(Verb::kOpenSession), 0, 0, 0},
           DeadlineExceeded("no OpenSession came within ", config_.limits.hello_timeout.count(),
                            " ms (limits.hello_timeout)"));
    End(line, EndCause::kProtocol);
  }
}

void LocalDoor::ServeEvents(std::span<const epoll_event> events) {
  if (events.size() <= 1) {
    for (const epoll_event& event : events) HandleEvent(event.data.u64, event.events);
    return;
  }
  struct Waiting {
    uint64_t served = 0;
    const epoll_event* event = nullptr;
  };
  std::map<uint32_t, std::vector<Waiting>> of_user;
  for (const epoll_event& event : events) {
    const auto found = lifelines_.find(event.data.u64 / 2);
    if (found == lifelines_.end()) {
      HandleEvent(event.data.u64, event.events);
      continue;
    }
    of_user[found->second->peer().uid].push_back({found->second->served, &event});
  }
  for (auto& [uid, waiting] : of_user) std::ranges::stable_sort(waiting, {}, &Waiting::served);
  const auto end = Clock::now() + kTurn;
  auto user = of_user.lower_bound(first_user_);
  for (size_t round = 0, left = of_user.size(), served = 0; left > 0; ++round, served = 0) {
    for (size_t i = 0; i < of_user.size(); ++i, ++user) {
      if (user == of_user.end()) user = of_user.begin();
      if (round >= user->second.size()) continue;
      if (round > 0 && Clock::now() >= end) {
        first_user_ = user->first;
        return;
      }
      ++served;
      const epoll_event& event = *user->second[round].event;
      const auto line = lifelines_.find(event.data.u64 / 2);
      if (line == lifelines_.end()) continue;  // ended earlier in this turn
      line->second->served = ++turn_;
      HandleEvent(event.data.u64, event.events);
    }
    left = served;
  }
}

void LocalDoor::RetryBlocked() {
  while (!blocked_.empty() && blocked_.begin()->first <= Clock::now()) {
    const uint64_t key = blocked_.begin()->second;
    blocked_.erase(blocked_.begin());
    if (const auto found = lifelines_.find(key); found != lifelines_.end()) Flush(found->second);
  }
}

void LocalDoor::Flush(const LifelinePointer& line) {
  if (const auto pause = line->Flush()) blocked_.emplace(Clock::now() + *pause, line->key());
}

void LocalDoor::HandleEvent(uint64_t tag, uint32_t events) {
  if (tag == kWakeTag) return RunPosted();
  if (tag == DescriptorsInFlight::kUnreadTag) return ForgetUsers();
  const auto found = lifelines_.find(tag / 2);
  if (found == lifelines_.end()) return;  // ended earlier in this turn
  const LifelinePointer line = found->second;
  if (tag % 2 == 1) {
    for (int i = 0; i < kLastFramesMax && ServeOne(line); ++i) continue;
    return End(line, EndCause::kKilled);
  }
  if ((events & EPOLLOUT) != 0) Flush(line);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  // Before the socket is read: a doorbell that is read while requests are served is not sent again for the same sleep.
  if (line->queue() != nullptr && !line->awaits_client()) Poll(line);
  for (int i = 0; i < kFramesPerTurnMax && ServeOne(line); ++i) continue;
}

// Returns true after a frame that wanted no answer, because more frames are likely; a client that waits for an answer
// has sent all. Also true while frames may be left that were sent before the first request in the queue.
bool LocalDoor::ServeOne(const LifelinePointer& line) {
  const bool has_queue = line->queue() != nullptr;
  // Queue entries are older than the frames that their client has sent since.
  if (has_queue && line->frames_served && line->open() && !line->awaits_client()) ServeQueue(line);
  if (!line->open()) return false;
  if (const auto cause = line->cut()) return End(line, *cause), false;
  Frame frame;
  const ReceiveOutcome outcome = Receive(line, &frame);
  if (outcome == ReceiveOutcome::kAgain) line->frames_served = has_queue;
  if (outcome != ReceiveOutcome::kFrame) return false;
  const bool is_doorbell = line->session && frame.header.verb == static_cast<uint16_t>(Verb::kDoorbell);
  if (is_doorbell) return OnDoorbell(line, frame), !line->frames_served;
  const bool is_recovered = frame.header.verb == static_cast<uint16_t>(Verb::kRecovered);
  if (line->session && is_recovered && (frame.header.flags & kFrameNoReply) != 0) return OnResumed(line, frame), true;
  if ((frame.header.flags & kFrameQueued) != 0) return Keep(line, frame), line->awaits_client();
  const bool more = (frame.header.flags & kFrameNoReply) != 0 || (has_queue && !line->frames_served);
  return Serve(line, frame), more;
}

ReceiveOutcome LocalDoor::Receive(const LifelinePointer& line, Frame* frame) {
  const auto receive = line->takes_no_descriptors() ? ReceivePlainFrame : ReceiveFrame;
  const ReceiveOutcome outcome = receive(line->socket(), buffer_, false, frame);
  const size_t descriptors = frame->descriptors();
  if (descriptors > 0) CloseAll(*frame);
  begun_ = Clock::now();
  if (outcome == ReceiveOutcome::kClosed) {
    End(line, line->cut().value_or(EndCause::kClean));
  } else if (outcome == ReceiveOutcome::kMalformed) {
    Violation(line, FrameHeader{},
              InvalidArgument("a frame must have ", sizeof(FrameHeader), " to ", kFrameBytesMax, " bytes"));
  } else if (outcome == ReceiveOutcome::kFrame && descriptors > 0) {
    Violation(line, frame->header, InvalidArgument("a client must not send descriptors; received ", descriptors));
    return ReceiveOutcome::kMalformed;
  }
  frame->header.flags &= static_cast<uint16_t>(~kFrameInQueue);
  return outcome;
}

void LocalDoor::Serve(const LifelinePointer& line, const Frame& frame) {
  serving_ = verbs_.counts().traffic.Begin(Door::kLifeline, frame.header.verb);
  const size_t bytes = sizeof(FrameHeader) + frame.payload.size();
  if (bytes > config_.limits.frame_bytes_max) {
    return Violation(
        line, frame.header,
        InvalidArgument("received a frame of ", bytes, " bytes (the most is ", config_.limits.frame_bytes_max, ")"));
  }
  if (frame.header.verb == static_cast<uint16_t>(Verb::kOpenSession)) return ServeHello(line, frame);
  if (!line->session) return Violation(line, frame.header, FailedPrecondition("the first frame must be OpenSession"));
  const bool again = (frame.header.flags & kFrameAgain) != 0;  // its result may be known
  if (!again && IsOverdue(frame.header, begun_)) {
    return Refuse(line, frame.header,
                  DeadlineExceeded("the deadline of this ", NameOf(Verb{frame.header.verb}),
                                   " passed before the broker served it: nothing was done, call again")
                      .Because("NOT_SERVED"));
  }
  if (line->resuming != nullptr && IsAnsweredAgain(line, frame)) return;
  static_cast<void>(Failpoint("frame_read"));
  ServeVerb(line, frame);
}

bool LocalDoor::IsOverdueNow(const FrameHeader& request) const { return IsOverdue(request, begun_); }

void LocalDoor::Refuse(const LifelinePointer& line, const FrameHeader& header, const Status& status) {
  if (line->session) {
    verbs_.counts().CountRefusal(*line->session, Verb{header.verb}, status);
  } else {
    verbs_.counts().CountRefusal(line->peer(), Verb{header.verb}, status);
  }
  Count(header, status.code());
  line->Refuse(header, status, verbs_.memory_wanted(line->peer().uid));
}

void LocalDoor::Count(const FrameHeader& header, Code code) {
  serving_.End();
  verbs_.counts().traffic.Count(Door::kLifeline, header.verb, code, Clock::now() - begun_);
}

// Tells the client and cuts it, because nothing that it sends after a violation can be trusted.
void LocalDoor::Violation(const LifelinePointer& line, const FrameHeader& header, const Status& status) {
  FrameHeader answered = header;
  answered.flags = 0;  // reported even if the client wanted no answer
  Refuse(line, answered, status);
  if (const auto dropped = violations_.Admit(Clock::now(), log::LinesPerSecond())) {
    const uint64_t session = line->session ? Number(*line->session) : 0;
    log::Warn(AboutCut(line->peer(), session, status.reason()), "lifeline cut: uid={} session={} {} ({} more before)",
              line->peer().uid, session, status.ToString(), *dropped);
  }
  End(line, EndCause::kProtocol);
}

void LocalDoor::Cut(SessionId session, std::string_view why) {
  const auto is_its = [&](const auto& entry) { return entry.second->session == session && !entry.second->joined; };
  const auto found = std::ranges::find_if(lifelines_, is_its);
  if (found == lifelines_.end()) return;
  const LifelinePointer line = found->second;
  if (const auto dropped = violations_.Admit(Clock::now(), log::LinesPerSecond())) {
    log::Warn(AboutCut(line->peer(), Number(session), "LIMIT"), "lifeline cut: uid={} session={} {} ({} more before)",
              line->peer().uid, Number(session), why, *dropped);
  }
  End(line, EndCause::kLimit);
}

// Forgets users that have neither a lifeline nor an unread descriptor.
void LocalDoor::ForgetUsers() {
  std::erase_if(of_uid_, [](const auto& user) { return user.second.in_flight->Empty() && user.second.lifelines == 0; });
}

// Runs once for each lifeline: a lifeline that is not in the table has ended.
void LocalDoor::End(const LifelinePointer& line, EndCause cause) {
  if (lifelines_.erase(line->key()) == 0) return;
  --of_uid_.at(line->peer().uid).lifelines;
  if (line->process() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, line->process(), nullptr);
  // Before another thread closes it: if epoll reported the socket at this moment, this thread would hold its last
  // reference and close it.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, line->socket(), nullptr);
  const bool cut = cause == EndCause::kProtocol || cause == EndCause::kLimit;
  if (cut) verbs_.counts().CountCut();
  // The session has published the entries of its queue, whatever ended it later.
  if (!cut && line->queue() != nullptr) {
    verbs_.publishes.ServePublishes(*line->queue(), session_queue::Format::kSlots, SessionQueue::Others::kDefer);
  }
  line->Close();
  line->stored = {};
  ForgetUsers();
  if (line->session && !line->joined) verbs_.sessions.EndSession(*line->session, cause);
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// Session queues: requests that a session writes into shared memory instead of frames. The loop polls a queue from the
// session's first message until the queue is empty for server.spin_us; then the session wakes the loop with a doorbell.
#include <algorithm>
#include <utility>

#include "daemon/service/lifeline/local_door.h"
#include "proto/boundary/failpoint.h"
#include "proto/boundary/pause.h"

namespace arraybridge::daemon {
namespace {

constexpr int kRequestsPerTurnMax = 64;  // per queue
constexpr size_t kPolledMax = 128;       // queues; sessions of the other queues send a doorbell for each request
constexpr int kQuietTurnsMax = 1024;     // turns of the loop after which an empty queue is no longer polled
constexpr size_t kPauses = 32;           // about a microsecond
constexpr size_t kQueuesPerPause = 64;   // polled in the time of a pause
constexpr int kFramesBeforeMax = 64;     // frames before the one that an entry refers to

bool HasRequest(const Lifeline& line) { return line.queue()->queue->HasRequest(); }

}  // namespace

Result<Answer> LocalDoor::QueueMapped(const LifelinePointer& line) {
  auto found = verbs_.publishes.FindQueue(*line->session);
  if (!found) return NotFound("the session has no queue").Because("NO_QUEUE");
  AB_RETURN_IF_ERROR(found->queue->Seal([weak = std::weak_ptr(line)] {
    if (const auto to = weak.lock()) to->SendDoorbell();
  }));
  if (line->queue() == nullptr) line->SetQueue(*std::move(found));
  Poll(line);
  return Answer{};
}

void LocalDoor::OnDoorbell(const LifelinePointer& line, const Frame& frame) {
  if ((frame.header.flags & kFrameNoReply) != 0)
    return verbs_.counts().traffic.Count(Door::kLifeline, frame.header.verb, Code::kOk, {});
  Refuse(line, frame.header, InvalidArgument("a Doorbell must want no answer"));
}

// Frames and their entries come in the same order. An entry that is not visible yet was written before the next frame
// was sent, and at most as many entries precede it as there are slots.
void LocalDoor::Keep(const LifelinePointer& line, const Frame& frame) {
  if (line->queue() == nullptr) return Violation(line, frame.header, FailedPrecondition("the session has no queue"));
  if (line->awaits_client()) {
    if (line->resuming->kept.size() < session_queue::Format::kSlots) {
      line->resuming->kept.emplace(frame.header.request, frame.payload);
    }
    return;
  }
  line->frames_served = true;
  std::string payload(frame.payload);
  for (uint64_t i = 0; line->kept && i < session_queue::Format::kSlots && line->open(); ++i) ServeQueue(line);
  if (!line->open()) return;
  if (line->kept) return Violation(line, frame.header, InvalidArgument("no entry of the queue refers to this frame"));
  line->kept = std::move(payload);
}

// Doorbells may precede the frame, and frames of threads that had not seen the queue yet.
bool LocalDoor::ReadKept(const LifelinePointer& line) {
  Frame frame;
  for (int i = 0; i < kFramesBeforeMax && line->open(); ++i) {
    const ReceiveOutcome outcome = Receive(line, &frame);
    if (outcome == ReceiveOutcome::kAgain) break;
    if (outcome != ReceiveOutcome::kFrame) return false;
    if ((frame.header.flags & kFrameQueued) != 0) return line->kept = std::string(frame.payload), true;
    if (frame.header.verb != static_cast<uint16_t>(Verb::kDoorbell)) Serve(line, frame);
  }
  if (!line->open()) return false;
  Violation(line, frame.header, InvalidArgument("an entry of the queue refers to a frame that was not sent"));
  return false;
}

void LocalDoor::Poll(const LifelinePointer& line) {
  line->quiet_turns = 0;
  line->queue()->queue->Wake();
  if (!std::exchange(line->polled, true)) polled_.push_back(line);
}

bool LocalDoor::PollsAgain() {
  if (has_several_cpus_) return !backoff_.SkipTurn();
  return std::ranges::any_of(polled_, [](const auto& line) { return !line->backed_off; });
}

bool LocalDoor::HasPending() const {
  return std::ranges::any_of(polled_, [](const auto& line) { return HasRequest(*line); });
}

bool LocalDoor::HasPendingSoon() const {
  const size_t step = 1 + polled_.size() / kQueuesPerPause;
  for (size_t i = 0; has_several_cpus_ && i < kPauses; i += step) {
    if (HasPending()) return true;
    Pause();
  }
  return false;
}

bool LocalDoor::ServeQueues() {
  std::erase_if(polled_, [](const auto& line) { return !line->open(); });
  bool any = false;
  const auto end = Clock::now() + kTurn;
  // Sessions in polled_ may end during the loop, but none is added.
  for (size_t i = 0; i < polled_.size(); ++i) {
    if (any && Clock::now() >= end) break;
    if (++next_polled_ >= polled_.size()) next_polled_ = 0;
    const LifelinePointer& line = polled_[next_polled_];
    if (!HasRequest(*line)) {
      ++line->quiet_turns;
      continue;
    }
    line->quiet_turns = 0;
    any = true;
    for (int frame = 0; !line->frames_served && frame < kRequestsPerTurnMax && ServeOne(line); ++frame) continue;
    if (line->frames_served && line->open()) ServeQueue(line);
  }
  const bool crowded = polled_.size() > kPolledMax;
  const auto is_quiet = [&](const Lifeline& line) {
    return line.quiet_turns > kQuietTurnsMax || (crowded && line.quiet_turns > 0);
  };
  if (std::ranges::any_of(polled_, [&](const auto& line) { return is_quiet(*line); })) LetSleep(is_quiet);
  return any;
}

void LocalDoor::ServeQueue(const LifelinePointer& line) {
  const std::shared_ptr<SessionQueue> queue = line->queue()->queue;
  const auto end = Clock::now() + kTurn;
  const uint64_t until = line->awaits_client() ? line->resuming->until : SessionQueue::kAll;
  for (int served = 0; served < kRequestsPerTurnMax && line->open() && queue->HasRequest();) {
    const auto taken = queue->Take(entry_, &entry_end_, until);
    begun_ = Clock::now();
    if (!taken.ok()) return Violation(line, FrameHeader{}, taken.status());
    if (*taken) {
      ++served;
      static_cast<void>(Failpoint("request_taken"));
      ServeEntry(line);
      static_cast<void>(Failpoint("request_served"));
      queue->Served();
    } else {
      const auto most = static_cast<uint64_t>(kRequestsPerTurnMax - served);
      const uint64_t publishes = verbs_.publishes.ServePublishes(*line->queue(), most, SessionQueue::Others::kStop);
      if (publishes == 0) break;
      served += static_cast<int>(publishes);
    }
    if (Clock::now() >= end) break;
  }
  queue->Finish();
  const SessionQueue::Counted counted = queue->counted();
  const bool resumed = line->resuming != nullptr && line->resuming->is_complete && !counted.deferred &&
                       counted.taken >= line->resuming->until;
  if (resumed) EndResuming(line);
  if (const auto cause = line->cut(); cause && line->open()) End(line, *cause);
}

void LocalDoor::ServeEntry(const LifelinePointer& line) {
  const session_queue::Header header = session_queue::HeaderOf(entry_);
  if (line->resuming != nullptr && IsServedAlready(line, header)) return;
  const auto has = [&](session_queue::Flag flag) { return (header.flags & flag) != 0; };
  if (!has(session_queue::kUnwaited)) line->backed_off = has(session_queue::kBackedOff);
  Frame frame;
  uint16_t flags = kFrameInQueue;
  if (has(session_queue::kUnwaited)) flags |= kFrameNoReply;
  if (has(session_queue::kDeadline)) flags |= kFrameDeadline;
  if (has(session_queue::kProgress)) flags |= kFrameProgress;
  frame.header = {header.verb, flags, header.status, header.id};
  frame.payload = session_queue::PayloadOf(entry_);
  std::string kept;
  if (has(session_queue::kOnSocket) && line->resuming != nullptr && line->resuming->kept.contains(header.id)) {
    kept = std::move(line->resuming->kept.extract(header.id).mapped());
    frame.payload = kept;
  } else if (has(session_queue::kOnSocket)) {
    if (!line->kept && !ReadKept(line)) return;
    kept = std::move(*line->kept);
    line->kept.reset();
    frame.payload = kept;
  }
  Serve(line, frame);
}

void LocalDoor::LetSleep(const std::function<bool(const Lifeline&)>& quiet) {
  const auto queue_of = [](const LifelinePointer& line) -> SessionQueue& { return *line->queue()->queue; };
  for (const auto& line : polled_) {
    if (quiet(*line)) queue_of(line).Announce();
  }
  ThreadFence(std::memory_order_seq_cst);
  std::erase_if(polled_, [&](const auto& line) {
    if (!quiet(*line)) return false;
    if (HasRequest(*line)) return queue_of(line).Wake(), line->quiet_turns = 0, false;
    line->polled = false;
    return true;
  });
}

bool LocalDoor::FallAsleep() {
  LetSleep([](const Lifeline&) { return true; });
  return polled_.empty();
}

}  // namespace arraybridge::daemon

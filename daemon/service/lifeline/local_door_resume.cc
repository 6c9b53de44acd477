// SPDX-License-Identifier: Apache-2.0
// Sessions that another daemon served. Their clients kept their sockets and their queues. The door tells each one with
// a Recovered frame. The client sends its requests that have no answer once more, with their numbers and kFrameAgain,
// between two Recovered frames. Until the first the door leaves the requests in the session's queue, except unwaited
// publishes. Then it serves the unwaited ones; it drops the waited ones, which come on the socket.
#include <cstring>
#include <utility>

#include "daemon/service/lifeline/local_door.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kSeenMax = 8192;  // a client has at most 1,024 requests that no thread waits for

}  // namespace

void LocalDoor::Resume(Connection connection, SessionId session) {
  Post([this, session, held = std::make_shared<Connection>(std::move(connection))] {
    Continue(std::move(*held), session);
  });
}

void LocalDoor::Continue(Connection connection, SessionId session) {
  const LifelinePointer line = Add(std::move(connection));
  line->session = session;
  line->stored = verbs_.sessions.StoredLifeline(session);
  line->resuming = std::make_unique<Lifeline::Resuming>();
  line->resuming->number = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  if (!Watch(line)) return;
  if (auto found = verbs_.publishes.FindQueue(session); found) {
    const Status sealed = found->queue->Seal([weak = std::weak_ptr(line)] {
      if (const auto to = weak.lock()) to->SendDoorbell();
    });
    if (!sealed.ok()) return End(line, EndCause::kLimit);
    line->SetQueue(*std::move(found));
  }
  line->TellRecovered(line->resuming->number);
}

// Both Recovered frames of the client say how many slots of its queue it had filled. At the first one, the door serves
// the unwaited requests in these slots, because what the client sends again may need them: a Publish needs its Mapped.
void LocalDoor::OnResumed(const LifelinePointer& line, const Frame& frame) {
  // A client may still answer a daemon that has died since.
  if (!line->awaits_client() || line->resuming->number != frame.header.request) return;
  uint64_t filled = 0;
  if (frame.payload.size() >= sizeof filled) std::memcpy(&filled, frame.payload.data(), sizeof filled);
  const bool has_queue = line->queue() != nullptr;
  if (has_queue && filled > line->queue()->queue->counted().filled) {
    return Violation(line, frame.header, InvalidArgument("a Recovered frame counts slots that were not filled"));
  }
  Lifeline::Resuming& resuming = *line->resuming;
  resuming.until = filled;
  if ((frame.header.flags & kFrameAgain) == 0) {
    resuming.is_complete = true;
    if (!has_queue) return EndResuming(line);
    line->frames_served = true;
    return Poll(line);
  }
  if (resuming.begun) return Violation(line, frame.header, InvalidArgument("a second Recovered frame begins"));
  resuming.begun = true;
  if (!has_queue) return;
  const SessionQueue& queue = *line->queue()->queue;
  for (uint64_t i = 0; i < session_queue::Format::kSlots && line->open(); ++i) {
    const SessionQueue::Counted before = queue.counted();
    if (before.taken >= filled && !before.deferred) break;
    ServeQueue(line);
    if (line->open() && queue.counted().taken == before.taken && queue.counted().deferred == before.deferred) break;
  }
}

// Until then the broker knows what the other daemon published for the entries that are still in the queue.
void LocalDoor::EndResuming(const LifelinePointer& line) {
  verbs_.sessions.Resumed(*line->session);
  line->resuming.reset();
}

bool LocalDoor::IsAnsweredAgain(const LifelinePointer& line, const Frame& frame) {
  if ((frame.header.flags & (kFrameNoReply | kFrameInQueue)) != 0 || line->resuming->is_complete) return false;
  // It was meant for a daemon that has died since, or overtakes what its client is about to send again: the client
  // sends it again, in order. A release is served now, because its client may not read for long.
  const bool waits = (frame.header.flags & kFrameAgain) != 0 || !IsServedLate(Verb{frame.header.verb});
  if (waits && !line->resuming->begun) return true;
  if (line->resuming->seen.size() >= kSeenMax) {
    Violation(line, frame.header, ResourceExhausted("more than ", kSeenMax, " requests before a Recovered frame"));
    return true;
  }
  if (!line->resuming->seen.insert(frame.header.request).second) return true;
  if ((frame.header.flags & kFrameAgain) == 0) return false;
  const Caller caller{*line->session, Door::kLifeline, true, {}, frame.header.request};
  if (auto published = verbs_.publishes.AnswerAgain(caller); published) {
    Count(frame.header, Code::kOk);
    line->Answer(frame.header, published->message, std::move(published->descriptor),
                 verbs_.memory_wanted(line->peer().uid));
    return true;
  }
  const bool too_late = (frame.header.flags & kFrameOutcome) != 0 || IsOverdueNow(frame.header);
  if (!too_late) return false;
  Refuse(line, frame.header,
         DeadlineExceeded("the broker was started anew before it served this ", NameOf(Verb{frame.header.verb}),
                          ", and its deadline has passed: nothing was done, call again")
             .Because("NOT_SERVED"));
  return true;
}

// The client sends again each waited request that has no answer. An older one in the queue is a copy, or was answered.
bool LocalDoor::IsServedAlready(const LifelinePointer& line, const session_queue::Header& header) {
  const Lifeline::Resuming& resuming = *line->resuming;
  const bool waited = (header.flags & session_queue::kUnwaited) == 0;
  // The other daemon had read the payload from the socket.
  const bool lost = (header.flags & session_queue::kOnSocket) != 0 && !resuming.kept.contains(header.id);
  const bool older = entry_end_ <= resuming.until;
  if (!older) EndResuming(line);
  return older && (waited || lost);
}

}  // namespace arraybridge::daemon

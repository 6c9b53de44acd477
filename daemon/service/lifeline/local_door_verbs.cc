// SPDX-License-Identifier: Apache-2.0
// Requests in frames, and the ways to answer. The rest of the door is in local_door.cc.
#include <functional>
#include <utility>

#include "daemon/service/lifeline/local_door.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

Caller CallerOf(const std::shared_ptr<Lifeline>& line, const Frame& frame) {
  Caller caller{*line->session, Door::kLifeline, (frame.header.flags & kFrameNoReply) == 0, {}, frame.header.request};
  caller.again = (frame.header.flags & kFrameAgain) != 0;
  if ((frame.header.flags & kFrameProgress) == 0) return caller;
  caller.progress = [waiting = std::weak_ptr(line), header = frame.header] {
    if (const auto to = waiting.lock()) to->TellProgress(header);
  };
  return caller;
}

}  // namespace

void LocalDoor::ServeHello(const LifelinePointer& line, const Frame& frame) {
  const auto request = wire::Decode<wire::OpenSessionRequest>(frame.payload);
  if (!request.ok()) return Violation(line, frame.header, request.status());
  if (line->session && line->awaits_client() && (frame.header.flags & kFrameAgain) != 0) {
    if (!line->resuming->begun) return;  // as IsAnsweredAgain
    const auto again = verbs_.sessions.AnswerAgain(*line->session);
    return Respond(line, frame, again.ok() ? Result<Answer>(AnswerOf(*again)) : Result<Answer>(again.status()));
  }
  if (line->session) return Refuse(line, frame.header, FailedPrecondition("this lifeline has a session already"));
  const bool join = !request->join.empty();
  const auto opened =
      join ? verbs_.sessions.Join(*request, line->peer()) : verbs_.sessions.OpenSession(*request, line->peer());
  if (!opened.ok()) return Refuse(line, frame.header, opened.status());
  line->session = SessionId{opened->session()};
  if (!join && request->resumes) {
    auto stored = verbs_.sessions.StoreLifeline(*line->session, line->socket());
    if (!stored.ok()) {
      verbs_.sessions.EndSession(*line->session, EndCause::kLimit);
      line->session.reset();
      return Refuse(line, frame.header, stored.status());
    }
    line->stored = *std::move(stored);
    static_cast<void>(Failpoint("lifeline_stored"));
  }
  // Drops deadlines of lifelines that have said hello, so that the loop need not read the clock.
  while (!hellos_.empty() && !AwaitsHello(hellos_.front().second)) hellos_.pop_front();
  line->joined = join;
  Respond(line, frame, AnswerOf(*opened));
}

void LocalDoor::ServeVerb(const LifelinePointer& line, const Frame& frame) {
  const Verb verb{frame.header.verb};
  if (line->joined && verb != Verb::kRedeem && verb != Verb::kGetServerInfo) {
    return Refuse(line, frame.header, PermissionDenied("a lifeline that joined a session only redeems its tickets"));
  }
  if (verb == Verb::kMapped) {
    const auto mapped = wire::Decode<wire::MappedRequest>(frame.payload);
    if (mapped.ok() && mapped->queue) return Respond(line, frame, QueueMapped(line));
  }
  const auto later = [&] { return ReplyTo(line, frame); };
  auto served = verbs_.Serve(CallerOf(line, frame), verb, frame.payload, std::ref(later));
  if (!served.ok()) return Violation(line, frame.header, served.status());
  if (served->now) Respond(line, frame, *std::move(served->now));
}

void LocalDoor::Respond(const LifelinePointer& line, const Frame& frame, Result<Answer> answer) {
  if (!answer.ok()) return Refuse(line, frame.header, answer.status());
  Count(frame.header, Code::kOk);
  line->Answer(frame.header, answer->message, std::move(answer->descriptor), verbs_.memory_wanted(line->peer().uid));
}

Reply LocalDoor::ReplyTo(const LifelinePointer& line, const Frame& frame) {
  return [&verbs = verbs_, caller = std::weak_ptr(line), header = frame.header, session = *line->session,
          begun = begun_, flight = std::make_shared<Traffic::InFlight>(std::move(serving_))](Result<Answer> answer) {
    flight->End();
    verbs.counts().traffic.Count(Door::kLifeline, header.verb, answer.status().code(), Clock::now() - begun);
    const LifelinePointer waiting = caller.lock();
    if (!waiting) return;
    if (answer.ok()) {
      return waiting->Answer(header, answer->message, std::move(answer->descriptor),
                             verbs.memory_wanted(waiting->peer().uid));
    }
    verbs.counts().CountRefusal(session, Verb{header.verb}, answer.status());
    waiting->Refuse(header, answer.status(), verbs.memory_wanted(waiting->peer().uid));
  };
}

void LocalDoor::TakeBack(SessionId session, Verb verb, std::string_view answer) {
  verbs_.TakeBack({session, Door::kLifeline}, verb, answer);
}

}  // namespace arraybridge::daemon

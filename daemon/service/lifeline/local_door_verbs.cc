// SPDX-License-Identifier: Apache-2.0
// Requests in frames: one case per verb, and the ways to answer. The rest of the door is in local_door.cc.
#include <functional>

#include "daemon/service/lifeline/local_door.h"
#include "daemon/service/lifeline/local_door_requests.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge {
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
  v1::OpenSessionRequest& request = requests_->open_session;
  if (!Parse(line, frame, &request)) return;
  if (line->session && line->awaits_client() && (frame.header.flags & kFrameAgain) != 0) {
    if (!line->resuming->begun) return;  // as IsAnsweredAgain
    const auto again = verbs_.sessions.AnswerAgain(*line->session);
    if (!again.ok()) return Refuse(line, frame.header, again.status());
    Count(frame.header, Code::kOk);
    return line->Answer(frame.header, *again, {}, verbs_.memory_wanted(line->peer().uid));
  }
  if (line->session) return Refuse(line, frame.header, FailedPrecondition("this lifeline has a session already"));
  const bool join = !request.join().empty();
  auto opened = join ? verbs_.sessions.Join(request, line->peer()) : verbs_.sessions.OpenSession(request, line->peer());
  if (!opened.ok()) return Refuse(line, frame.header, opened.status());
  line->session = SessionId{opened->session()};
  if (!join && request.resumes()) {
    auto stored = verbs_.sessions.StoreLifeline(*line->session, line->socket());
    if (!stored.ok()) {
      verbs_.sessions.EndSession(*line->session, EndCause::kLimit);
      line->session.reset();
      return Refuse(line, frame.header, stored.status());
    }
    line->stored = *std::move(stored);
    static_cast<void>(Failpoint("lifeline_stored"));
  }
  Count(frame.header, Code::kOk);
  // Drops deadlines of lifelines that have said hello, so that the loop need not read the clock.
  while (!hellos_.empty() && !AwaitsHello(hellos_.front().second)) hellos_.pop_front();
  line->joined = join;
  line->Answer(frame.header, *opened, {}, verbs_.memory_wanted(line->peer().uid));
}

void LocalDoor::ServeVerb(const LifelinePointer& line, const Frame& frame) {
  const Verb verb{frame.header.verb};
  LocalDoorRequests& requests = *requests_;
  if (line->joined && verb != Verb::kRedeem && verb != Verb::kGetServerInfo) {
    return Refuse(line, frame.header, PermissionDenied("a lifeline that joined a session only redeems its tickets"));
  }
  switch (verb) {
    case Verb::kOpenSession:
    case Verb::kDoorbell:
    case Verb::kRecovered:
      break;  // served above
    case Verb::kGetServerInfo:
      if (!Parse(line, frame, &requests.get_server_info)) return;
      Count(frame.header, Code::kOk);
      return line->Answer(frame.header, verbs_.lists.GetServerInfo(), {}, verbs_.memory_wanted(line->peer().uid));
    case Verb::kAllocate:
      if (!Parse(line, frame, &requests.allocate)) return;
      return Later<v1::AllocateResponse>(line, frame, requests.allocate, verbs_.arenas, &ArenaVerbs::Allocate);
    case Verb::kMapped:
      return Mapped(line, frame);
    case Verb::kPublish:
      return Publish(line, frame);
    case Verb::kAcquire:
      return Acquire(line, frame);
    case Verb::kExport:
      return Now(line, frame, &requests.export_arena, verbs_.arenas, &ArenaVerbs::Export);
    case Verb::kRelease:
      return Now(line, frame, &requests.release, verbs_.shares, &ShareVerbs::Release);
    case Verb::kWithdraw:
      return Now(line, frame, &requests.withdraw, verbs_.shares, &ShareVerbs::Withdraw);
    case Verb::kList:
      return Now(line, frame, &requests.list, verbs_.lists, &ListVerbs::List);
    case Verb::kGetStats:
      return Now(line, frame, &requests.get_stats, verbs_.lists, &ListVerbs::GetStats);
    case Verb::kRedeem:
      return Now(line, frame, &requests.redeem, verbs_.arenas, &ArenaVerbs::Redeem);
    case Verb::kBrowse:
      return Now(line, frame, &requests.browse, verbs_.arenas, &ArenaVerbs::Browse);
    case Verb::kOpenChannel:
      return Now(line, frame, &requests.open_channel, verbs_.channels, &ChannelVerbs::OpenChannel);
    case Verb::kCloseChannel:
      return Now(line, frame, &requests.close_channel, verbs_.channels, &ChannelVerbs::CloseChannel);
    case Verb::kReceive:
      return Receive(line, frame);
    case Verb::kWatch:
      if (!Parse(line, frame, &requests.watch)) return;
      return Later<v1::WatchResponse>(line, frame, requests.watch, verbs_.watches, &WatchVerbs::Watch);
    case Verb::kInspect:
      return Now(line, frame, &requests.inspect, verbs_.lists, &ListVerbs::Inspect);
  }
  Refuse(line, frame.header, Unimplemented("verb ", frame.header.verb, " is unknown to this broker"));
}

template <class Message>
bool LocalDoor::Parse(const LifelinePointer& line, const Frame& frame, Message* message) {
  if (message->ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size()))) return true;
  Violation(line, frame.header, InvalidArgument("the payload is no message of verb ", frame.header.verb));
  return false;
}

template <class Request, class Noun, class Verb>
void LocalDoor::Now(const LifelinePointer& line, const Frame& frame, Request* request, Noun& noun, Verb verb) {
  if (!Parse(line, frame, request)) return;
  Respond(line, frame, std::invoke(verb, noun, CallerOf(line, frame), *request));
}

template <class Message>
void LocalDoor::Respond(const LifelinePointer& line, const Frame& frame, Result<Answer<Message>> answer) {
  if (!answer.ok()) return Refuse(line, frame.header, answer.status());
  Count(frame.header, Code::kOk);
  line->Answer(frame.header, answer->message, std::move(answer->descriptor), verbs_.memory_wanted(line->peer().uid));
}

// The answer may come from another thread, after the client is gone.
template <class Response, class Request, class Noun, class Verb>
void LocalDoor::Later(const LifelinePointer& line, const Frame& frame, Request& request, Noun& noun, Verb verb) {
  Reply<Response> reply =
      [&verbs = verbs_, caller = std::weak_ptr(line), header = frame.header, session = *line->session, begun = begun_,
       flight = std::make_shared<Traffic::InFlight>(std::move(serving_))](Result<Answer<Response>> answer) {
        flight->End();
        verbs.counts().traffic.Count(Door::kLifeline, header.verb, answer.status().code(), Clock::now() - begun);
        const LifelinePointer waiting = caller.lock();
        if (!waiting) return;
        if (answer.ok()) {
          return waiting->Answer(header, answer->message, std::move(answer->descriptor),
                                 verbs.memory_wanted(waiting->peer().uid));
        }
        verbs.counts().CountRefusal(session, arraybridge::Verb{header.verb}, answer.status());
        waiting->Refuse(header, answer.status(), verbs.memory_wanted(waiting->peer().uid));
      };
  std::invoke(verb, noun, CallerOf(line, frame), request, std::move(reply));
}

void LocalDoor::Mapped(const LifelinePointer& line, const Frame& frame) {
  if (!Parse(line, frame, &requests_->mapped)) return;
  if (requests_->mapped.queue()) return Respond(line, frame, QueueMapped(line));
  Respond(line, frame, verbs_.arenas.Mapped(CallerOf(line, frame), requests_->mapped));
}

// A permanent seal may sleep, so it runs on another thread.
void LocalDoor::Publish(const LifelinePointer& line, const Frame& frame) {
  const auto asked = ReadPublish(frame.payload);
  if (!asked.ok()) return Violation(line, frame.header, asked.status());
  if (asked->channel != 0) return Later<v1::PublishResponse>(line, frame, *asked, verbs_.channels, &ChannelVerbs::Send);
  if (asked->sealed)
    return Later<v1::PublishResponse>(line, frame, *asked, verbs_.publishes, &PublishVerbs::PublishSealed);
  Respond(line, frame, verbs_.publishes.Publish(CallerOf(line, frame), *asked));
}

// An available share is answered directly, because a get is the most frequent request.
void LocalDoor::Acquire(const LifelinePointer& line, const Frame& frame) {
  const auto asked = ReadAcquire(frame.payload);
  if (!asked.ok()) return Violation(line, frame.header, asked.status());
  auto granted = verbs_.shares.TryAcquire(CallerOf(line, frame), *asked, &requests_->acquired);
  if (granted.ok()) {
    Count(frame.header, Code::kOk);
    return line->AnswerBytes(frame.header, requests_->acquired, *std::move(granted),
                             verbs_.memory_wanted(line->peer().uid));
  }
  if (!ShareVerbs::MayCome(granted.status(), asked->timeout_ms)) return Refuse(line, frame.header, granted.status());
  Later<v1::AcquireResponse>(line, frame, *asked, verbs_.shares, &ShareVerbs::Acquire);
}

void LocalDoor::Receive(const LifelinePointer& line, const Frame& frame) {
  const v1::ReceiveRequest& request = requests_->receive;
  if (!Parse(line, frame, &requests_->receive)) return;
  auto granted = verbs_.channels.TryReceive(CallerOf(line, frame), request, &requests_->acquired);
  if (!granted.ok()) {
    if (!ChannelVerbs::MayArrive(granted.status())) return Refuse(line, frame.header, granted.status());
    return Later<v1::AcquireResponse>(line, frame, request, verbs_.channels, &ChannelVerbs::ReceiveLater);
  }
  Count(frame.header, Code::kOk);
  line->AnswerBytes(frame.header, requests_->acquired, *std::move(granted), verbs_.memory_wanted(line->peer().uid));
}

void LocalDoor::TakeBack(SessionId session, Verb verb, std::string_view answer) {
  const auto take_back = [&](auto message) {
    const bool ours = message.ParseFromArray(answer.data(), static_cast<int>(answer.size()));
    if (ours) verbs_.TakeBack({session, Door::kLifeline}, message);
  };
  if (verb == Verb::kAllocate) take_back(v1::AllocateResponse());
  if (verb == Verb::kAcquire || verb == Verb::kReceive) take_back(v1::AcquireResponse());
  if (verb == Verb::kExport) take_back(v1::ExportResponse());
}

}  // namespace arraybridge

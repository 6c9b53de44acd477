// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/channel_verbs.h"

#include <utility>

#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/share_wire.h"

namespace arraybridge::daemon {
namespace {

bool IsFull(const Status& refusal) { return refusal.reason() == "CHANNEL_FULL"; }
bool IsEmpty(const Status& refusal) { return refusal.reason() == "CHANNEL_EMPTY"; }

// The refusal of a request that has not been the first of its queue yet.
Status OthersWait() {
  return ResourceExhausted("other requests wait to send into the channel").Because("CHANNEL_FULL");
}

// Turns a refusal that may end later into the final answer.
Status InTime(const Status& refusal) {
  if (!IsFull(refusal) && !IsEmpty(refusal)) return refusal;
  return DeadlineExceeded(refusal.message()).Because(refusal.reason());
}

}  // namespace

Result<Answer> ChannelVerbs::OpenChannel(const Caller& caller, const wire::OpenChannelRequest& request) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckOpenChannel(config_.limits, request));
  const bool sends = request.role == wire::OpenChannelRequest::Role::kSender;
  const ChannelTerms terms{.capacity = request.capacity,
                           .mode = static_cast<ChannelMode>(request.mode),
                           .drop_oldest = request.drop_oldest,
                           .replay = request.replay};
  const auto role = sends ? ChannelRole::kSender : ChannelRole::kReceiver;
  const OpenChannelCall call{request.namespace_, request.name, role, terms, caller.request, request.run, request.fresh};
  auto opened = broker_.OpenChannel(caller.session, call);
  while (!opened.ok() && IsDirectRefusal(opened.status())) {
    EndDirectChannel(broker_.DirectChannelIn(caller.session, call.ns, call.name));
    opened = broker_.OpenChannel(caller.session, call);
  }
  if (!opened.ok()) return opened.status();
  ServeChannel(line_, broker_, opened->channel);  // the channel may have more room now
  return AnswerOf(wire::OpenChannelResponse{.channel = Number(opened->end),
                                            .capacity = opened->capacity,
                                            .seen_notice = opened->seen_notice,
                                            .mode = static_cast<wire::ChannelMode>(opened->mode),
                                            .keeps_runs = true});
}

Result<Answer> ChannelVerbs::CloseChannel(const Caller& caller, const wire::CloseChannelRequest& request) {
  const ChannelEndId end{request.channel};
  const EndedHow how = request.abandoned ? EndedHow::kAbandoned : EndedHow::kClosed;
  auto closed = broker_.CloseChannel(caller.session, end, how);
  while (!closed.ok() && IsDirectRefusal(closed.status())) {
    EndDirectChannel(broker_.DirectChannelOf(caller.session, end));
    closed = broker_.CloseChannel(caller.session, end, how);
  }
  if (caller.again && closed.status().reason() == "CHANNEL_NOT_OPEN") return Answer{};
  if (!closed.ok()) return closed.status();
  ServeChannel(line_, broker_, *closed);
  line_.ServeQueue(QueueOf(end));
  reclaimer_.Reclaim();
  return Answer{};
}

Result<uint32_t> ChannelVerbs::Drain(const Caller& caller, const wire::WithdrawRequest& request) {
  const std::string_view ns = request.namespace_;
  auto drained = broker_.DrainChannel(caller.session, ns, request.channel, request.remove);
  while (!drained.ok() && IsDirectRefusal(drained.status())) {
    EndDirectChannel(broker_.DirectChannelIn(caller.session, ns, request.channel));
    drained = broker_.DrainChannel(caller.session, ns, request.channel, request.remove);
  }
  if (!drained.ok()) return drained.status();
  ServeChannel(line_, broker_, drained->channel);  // senders may have waited for room
  return drained->shares;
}

Served ChannelVerbs::Send(const Caller& caller, const wire::PublishRequest& request, std::string_view bytes,
                          const Later& later) {
  const auto check = [&]() -> Result<ChannelPlace> {
    AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
    AB_RETURN_IF_ERROR(CheckPublish(config_.limits, request));
    AB_RETURN_IF_ERROR(CheckSend(request));
    return broker_.ChannelOf(caller.session, ChannelEndId{request.channel}, ChannelRole::kSender);
  };
  const auto place = check();
  if (!place.ok()) return {place.status()};
  const ChannelId channel = place->channel;
  const uint64_t timeout_ms = caller.TimeoutOf(request.timeout_ms);

  struct Wait {
    std::string ns;
    PublishCall call;
    Reply reply;
    Status full;
  };
  const auto wait = std::make_shared<Wait>(Wait{std::string(request.namespace_), CallOf(request), {}, OthersWait()});
  wait->call.ns = wait->ns;
  wait->call.name = {};
  wait->call.request = caller.request;
  const uint64_t queue = QueueOf(channel, ChannelRole::kSender);
  if (!line_.waits_in(queue)) {
    const auto sent = PublishInto(caller, wait->call);
    if (sent.ok()) {
      ServeChannel(line_, broker_, channel);
      return {handover_.Published(caller, *sent)};
    }
    if (!IsFull(sent.status()) || timeout_ms == 0) return {InTime(sent.status())};
    wait->full = sent.status();
  } else if (Status notice = broker_.NoticeTo(caller.session, wait->call.channel, request.seen_notice); !notice.ok()) {
    return {std::move(notice)};  // it is not kept waiting behind requests that have seen the notice
  }
  auto waits = admission_.WaiterOf(caller, bytes.size());
  if (!waits.ok()) return {waits.status()};
  Waiter waiter = *std::move(waits);
  waiter.deadline = admission_.DeadlineOf(timeout_ms);
  waiter.retry = [this, caller, wait](bool) -> Deliver {
    if (admission_.draining()) return nullptr;
    auto published = PublishInto(caller, wait->call);
    if (!published.ok() && IsFull(published.status())) {
      wait->full = published.status();
      return nullptr;
    }
    const auto result = std::make_shared<Result<PublishedShare>>(std::move(published));
    return [this, caller, wait, result] {
      if (!result->ok()) return wait->reply(result->status());
      wait->reply(handover_.Published(caller, **result));
    };
  };
  waiter.slow = [this, session = caller.session, end = wait->call.channel] { LogSlow(session, end); };
  waiter.expire = [this, wait] {
    const Status draining = admission_.CheckNotDraining();
    wait->reply(draining.ok() ? InTime(wait->full) : draining);
  };
  wait->reply = later();
  const auto waiting = line_.WaitInQueue(queue, std::move(waiter));
  if (!waiting.ok()) return wait->reply(waiting.status()), Served{};
  ServeChannel(line_, broker_, channel);
  return {{}, *waiting};
}

Result<Answer> ChannelVerbs::TryReceive(const Caller& caller, const wire::ReceiveRequest& request) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  if (!caller.hears) return InvalidArgument("Receive must want an answer");
  const ChannelEndId end{request.channel};
  const auto place = broker_.ChannelOf(caller.session, end, ChannelRole::kReceiver);
  if (!place.ok()) {
    if (!broker_.ChannelOf(caller.session, end, ChannelRole::kSender).ok()) return place.status();
    // A sender receives notices alone.
    AB_RETURN_IF_ERROR(broker_.NoticeTo(caller.session, end, request.seen_notice));
    return Answer{};
  }
  if (request.revoke) EndDirectChannel(broker_.DirectChannelOf(caller.session, end));
  if (line_.waits_in(QueueOf(*place, end, ChannelRole::kReceiver))) {
    AB_RETURN_IF_ERROR(broker_.NoticeTo(caller.session, end, request.seen_notice));  // as in Send
    return NotFound("other requests wait to receive from the channel").Because("CHANNEL_EMPTY");
  }
  auto received = ReceiveNow(caller, request);
  if (received.ok()) ServeChannel(line_, broker_, place->channel);
  return received;
}

Result<Answer> ChannelVerbs::ReceiveNow(const Caller& caller, const wire::ReceiveRequest& request) {
  auto received = broker_.Receive(caller.session, ChannelEndId{request.channel}, request.seen_notice,
                                  caller.door == Door::kLifeline, caller.request);
  if (!received.ok()) return received.status();
  return handover_.Leased(caller, *std::move(received));
}

void ChannelVerbs::LogSlow(SessionId session, ChannelEndId end) const {
  counts_.log.ChannelAwaited(session, end, kSlowWait.count());
}

Served ChannelVerbs::Receive(const Caller& caller, const wire::ReceiveRequest& request, std::string_view bytes,
                             const Later& later) {
  const uint64_t timeout_ms = caller.TimeoutOf(request.timeout_ms);
  auto received = TryReceive(caller, request);
  if (received.ok()) return {std::move(received)};
  const bool may_come = received.status().code() == Code::kNotFound && IsEmpty(received.status());
  if (!may_come || timeout_ms == 0) return {InTime(received.status())};
  const ChannelEndId end{request.channel};
  const auto place = broker_.ChannelOf(caller.session, end, ChannelRole::kReceiver);
  if (!place.ok()) return {place.status()};
  auto waits = admission_.WaiterOf(caller, bytes.size());
  if (!waits.ok()) return {waits.status()};
  Waiter waiter = *std::move(waits);
  waiter.deadline = admission_.DeadlineOf(timeout_ms);
  const Reply reply = later();
  waiter.retry = [this, caller, request, reply](bool) -> Deliver {
    if (admission_.draining()) return nullptr;
    auto now = ReceiveNow(caller, request);
    if (!now.ok() && IsEmpty(now.status())) return nullptr;
    return Delivery(reply, std::move(now));
  };
  waiter.slow = [this, session = caller.session, end] { LogSlow(session, end); };
  waiter.expire = [this, reply, timeout_ms] {
    const Status draining = admission_.CheckNotDraining();
    const std::string waited = admission_.TimedOut(timeout_ms);
    reply(draining.ok() ? DeadlineExceeded(waited, "the channel is empty").Because("CHANNEL_EMPTY") : draining);
  };
  const auto waiting = line_.WaitInQueue(QueueOf(*place, end, ChannelRole::kReceiver), std::move(waiter));
  if (!waiting.ok()) return reply(waiting.status()), Served{};
  ServeChannel(line_, broker_, place->channel);
  return {{}, *waiting};
}

}  // namespace arraybridge::daemon

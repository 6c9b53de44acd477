// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/channel_verbs.h"

#include <utility>

#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/share_wire.h"

namespace arraybridge {
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

Result<Answer<v1::OpenChannelResponse>> ChannelVerbs::OpenChannel(const Caller& caller,
                                                                  const v1::OpenChannelRequest& request) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckOpenChannel(config_.limits, request));
  const auto role = request.role() == v1::OpenChannelRequest::SENDER ? ChannelRole::kSender : ChannelRole::kReceiver;
  ChannelTerms terms{.capacity = request.capacity(), .mode = static_cast<ChannelMode>(request.mode())};
  if (request.has_drop_oldest()) terms.drop_oldest = request.drop_oldest();
  if (request.has_replay()) terms.replay = request.replay();
  const OpenChannelCall call{request.namespace_(), request.name(), role, terms, caller.request};
  auto opened = broker_.OpenChannel(caller.session, call);
  while (!opened.ok() && IsDirectRefusal(opened.status())) {
    EndDirectChannel(broker_.DirectChannelIn(caller.session, call.ns, call.name));
    opened = broker_.OpenChannel(caller.session, call);
  }
  if (!opened.ok()) return opened.status();
  ServeChannel(line_, broker_, opened->channel);  // the channel may have more room now
  Answer<v1::OpenChannelResponse> answer;
  answer.message.set_channel(Number(opened->end));
  answer.message.set_capacity(opened->capacity);
  answer.message.set_seen_notice(opened->seen_notice);
  answer.message.set_mode(static_cast<v1::ChannelMode>(opened->mode));
  return answer;
}

Result<Answer<v1::CloseChannelResponse>> ChannelVerbs::CloseChannel(const Caller& caller,
                                                                    const v1::CloseChannelRequest& request) {
  const ChannelEndId end{request.channel()};
  const EndedHow how = request.abandoned() ? EndedHow::kAbandoned : EndedHow::kClosed;
  auto closed = broker_.CloseChannel(caller.session, end, how);
  while (!closed.ok() && IsDirectRefusal(closed.status())) {
    EndDirectChannel(broker_.DirectChannelOf(caller.session, end));
    closed = broker_.CloseChannel(caller.session, end, how);
  }
  if (caller.again && closed.status().reason() == "CHANNEL_NOT_OPEN") return Answer<v1::CloseChannelResponse>{};
  if (!closed.ok()) return closed.status();
  ServeChannel(line_, broker_, *closed);
  line_.ServeQueue(QueueOf(end));
  reclaimer_.Reclaim();
  return Answer<v1::CloseChannelResponse>{};
}

Result<uint32_t> ChannelVerbs::Drain(const Caller& caller, const v1::WithdrawRequest& request) {
  const std::string& ns = request.namespace_();
  auto drained = broker_.DrainChannel(caller.session, ns, request.channel(), request.remove());
  while (!drained.ok() && IsDirectRefusal(drained.status())) {
    EndDirectChannel(broker_.DirectChannelIn(caller.session, ns, request.channel()));
    drained = broker_.DrainChannel(caller.session, ns, request.channel(), request.remove());
  }
  if (!drained.ok()) return drained.status();
  ServeChannel(line_, broker_, drained->channel);  // senders may have waited for room
  return drained->shares;
}

WaiterId ChannelVerbs::Send(const Caller& caller, const PublishAsked& asked, const Reply<v1::PublishResponse>& reply) {
  const auto check = [&]() -> Result<ChannelPlace> {
    AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
    AB_RETURN_IF_ERROR(CheckPublish(config_.limits, asked));
    AB_RETURN_IF_ERROR(CheckSend(asked));
    return broker_.ChannelOf(caller.session, ChannelEndId{asked.channel}, ChannelRole::kSender);
  };
  const auto place = check();
  if (!place.ok()) return reply(place.status()), WaiterId{};
  const ChannelId channel = place->channel;

  struct Wait {
    std::string ns;
    PublishCall call;
    Reply<v1::PublishResponse> reply;
    Status full;
  };
  const auto wait = std::make_shared<Wait>(Wait{std::string(asked.ns), CallOf(asked), reply, OthersWait()});
  wait->call.ns = wait->ns;
  wait->call.name = {};
  wait->call.request = caller.request;
  const auto attempt = [this, caller, wait, channel]() -> Result<Answer<v1::PublishResponse>> {
    auto published = PublishInto(caller, wait->call);
    if (!published.ok()) return published.status();
    ServeChannel(line_, broker_, channel);
    return handover_.AnswerOf(caller, *std::move(published));
  };
  const uint64_t queue = QueueOf(channel, ChannelRole::kSender);
  if (!line_.waits_in(queue)) {
    auto sent = attempt();
    if (sent.ok() || !IsFull(sent.status()) || asked.timeout_ms == 0) {
      if (sent.ok()) return reply(std::move(sent)), WaiterId{};
      return reply(InTime(sent.status())), WaiterId{};
    }
    wait->full = sent.status();
  } else if (Status notice = broker_.NoticeTo(caller.session, wait->call.channel, asked.seen_notice); !notice.ok()) {
    return reply(std::move(notice)), WaiterId{};  // it is not kept waiting behind requests that have seen the notice
  }
  auto waits = admission_.WaiterOf(caller, asked.bytes.size());
  if (!waits.ok()) return reply(waits.status()), WaiterId{};
  Waiter waiter = *std::move(waits);
  waiter.deadline = admission_.DeadlineOf(asked.timeout_ms);
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
      wait->reply(handover_.AnswerOf(caller, std::move(**result)));
    };
  };
  waiter.slow = [this, session = caller.session, end = wait->call.channel] { LogSlow(session, end); };
  waiter.expire = [this, wait] {
    const Status draining = admission_.CheckNotDraining();
    wait->reply(draining.ok() ? InTime(wait->full) : draining);
  };
  const auto waiting = line_.WaitInQueue(queue, std::move(waiter));
  if (!waiting.ok()) return reply(waiting.status()), WaiterId{};
  ServeChannel(line_, broker_, channel);
  return *waiting;
}

Result<PassedFd> ChannelVerbs::TryReceive(const Caller& caller, const v1::ReceiveRequest& request,
                                          std::string* response) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  if (!caller.hears) return InvalidArgument("Receive must want an answer");
  const ChannelEndId end{request.channel()};
  const auto place = broker_.ChannelOf(caller.session, end, ChannelRole::kReceiver);
  if (!place.ok()) {
    if (!broker_.ChannelOf(caller.session, end, ChannelRole::kSender).ok()) return place.status();
    // A sender receives notices alone.
    AB_RETURN_IF_ERROR(broker_.NoticeTo(caller.session, end, request.seen_notice()));
    response->clear();
    return PassedFd{};
  }
  if (request.revoke()) EndDirectChannel(broker_.DirectChannelOf(caller.session, end));
  const bool waits = request.timeout_ms() > 0;
  if (line_.waits_in(QueueOf(*place, end, ChannelRole::kReceiver))) {
    AB_RETURN_IF_ERROR(broker_.NoticeTo(caller.session, end, request.seen_notice()));  // as in Send
    const Status others = NotFound("other requests wait to receive from the channel").Because("CHANNEL_EMPTY");
    return waits ? others : InTime(others);
  }
  auto received =
      broker_.Receive(caller.session, end, request.seen_notice(), caller.door == Door::kLifeline, caller.request);
  if (!received.ok()) return waits ? received.status() : InTime(received.status());
  ServeChannel(line_, broker_, place->channel);
  return handover_.EncodeLeases(caller, *std::move(received), response);
}

void ChannelVerbs::LogSlow(SessionId session, ChannelEndId end) const {
  counts_.log.ChannelAwaited(session, end, kSlowWait.count());
}

bool ChannelVerbs::MayArrive(const Status& refusal) { return refusal.code() == Code::kNotFound && IsEmpty(refusal); }

Result<Answer<v1::AcquireResponse>> ChannelVerbs::ReceiveMessage(const Caller& caller,
                                                                 const v1::ReceiveRequest& request) {
  auto received = broker_.Receive(caller.session, ChannelEndId{request.channel()}, request.seen_notice(),
                                  caller.door == Door::kLifeline, caller.request);
  if (!received.ok()) return received.status();
  std::string bytes;
  auto descriptor = handover_.EncodeLeases(caller, *std::move(received), &bytes);
  if (!descriptor.ok()) return descriptor.status();
  return handover_.DecodeLeases(caller, bytes, *std::move(descriptor));
}

WaiterId ChannelVerbs::Receive(const Caller& caller, const v1::ReceiveRequest& request,
                               const Reply<v1::AcquireResponse>& reply) {
  std::string bytes;
  auto received = TryReceive(caller, request, &bytes);
  if (received.ok()) return reply(handover_.DecodeLeases(caller, bytes, *std::move(received))), WaiterId{};
  if (!MayArrive(received.status())) return reply(received.status()), WaiterId{};
  return ReceiveLater(caller, request, reply);
}

WaiterId ChannelVerbs::ReceiveLater(const Caller& caller, const v1::ReceiveRequest& request,
                                    const Reply<v1::AcquireResponse>& reply) {
  const ChannelEndId end{request.channel()};
  const auto place = broker_.ChannelOf(caller.session, end, ChannelRole::kReceiver);
  if (!place.ok()) return reply(place.status()), WaiterId{};
  auto waits = admission_.WaiterOf(caller, request.ByteSizeLong());
  if (!waits.ok()) return reply(waits.status()), WaiterId{};
  Waiter waiter = *std::move(waits);
  waiter.deadline = admission_.DeadlineOf(request.timeout_ms());
  waiter.retry = [this, caller, request, reply](bool) -> Deliver {
    if (admission_.draining()) return nullptr;
    auto received = ReceiveMessage(caller, request);
    if (!received.ok() && IsEmpty(received.status())) return nullptr;
    const auto result = std::make_shared<Result<Answer<v1::AcquireResponse>>>(std::move(received));
    return [reply, result] { reply(std::move(*result)); };
  };
  waiter.slow = [this, session = caller.session, end] { LogSlow(session, end); };
  waiter.expire = [this, reply, timeout_ms = request.timeout_ms()] {
    const Status draining = admission_.CheckNotDraining();
    const std::string waited = admission_.TimedOut(timeout_ms);
    reply(draining.ok() ? DeadlineExceeded(waited, "the channel is empty").Because("CHANNEL_EMPTY") : draining);
  };
  const auto waiting = line_.WaitInQueue(QueueOf(*place, end, ChannelRole::kReceiver), std::move(waiter));
  if (!waiting.ok()) return reply(waiting.status()), WaiterId{};
  ServeChannel(line_, broker_, place->channel);
  return *waiting;
}

}  // namespace arraybridge

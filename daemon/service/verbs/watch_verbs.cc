// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/watch_verbs.h"

#include <pthread.h>

#include <memory>
#include <utility>
#include <vector>

#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kWatchQueues = 1ull << 63;  // the small numbers belong to channels

uint64_t QueueOf(WatcherId watcher) { return kWatchQueues | Number(watcher); }

EventFilter FilterOf(const wire::WatchRequest& request) {
  EventFilter filter;
  for (const wire::EventKind kind : request.kinds) filter.kinds |= 1u << static_cast<unsigned>(kind);
  filter.ns = request.namespace_;
  filter.name_prefix = request.name_prefix;
  return filter;
}

Answer Opened(WatcherId watcher) { return AnswerOf(wire::WatchResponse{.watch = Number(watcher)}); }

}  // namespace

WatchVerbs::WatchVerbs(const VerbParts& parts) : VerbParts(parts), news_([this] { SpreadNews(); }) {}

void WatchVerbs::Stop() {
  broker_.events().Stop();
  news_.join();
}

Result<std::optional<Answer>> WatchVerbs::TakeEvents(const Caller& caller, WatcherId watcher) {
  AB_ASSIGN_OR_RETURN(const auto taken, broker_.events().Take(caller.session, watcher, AnswerBytesMax(config_.limits)));
  if (taken.empty()) return std::optional<Answer>();
  wire::WatchResponse response{.watch = Number(watcher)};
  for (const auto& event : taken) response.events.push_back(ToWire(*event));
  return std::optional(AnswerOf(response));
}

Result<Answer> WatchVerbs::OpenOrClose(const Caller& caller, const wire::WatchRequest& request) {
  const WatcherId watcher{request.watch};
  if (request.close) {
    if (CloseWatch(caller, watcher)) return Opened(watcher);
    return NotFound("this watch is not open").Because("WATCH_NOT_OPEN");
  }
  AB_ASSIGN_OR_RETURN(const auto opened, broker_.OpenWatch(caller.session, FilterOf(request)));
  return Opened(opened);
}

bool WatchVerbs::CloseWatch(const Caller& caller, WatcherId watcher) {
  if (!broker_.events().Close(caller.session, watcher)) return false;
  line_.ServeQueue(QueueOf(watcher));
  return true;
}

Served WatchVerbs::Watch(const Caller& caller, const wire::WatchRequest& request, std::string_view bytes,
                         const Later& later) {
  if (!caller.hears && !request.close) return {InvalidArgument("Watch must want an answer")};
  if (const Status draining = admission_.CheckNotDraining(); !draining.ok()) return {draining};
  if (const Status wrong = CheckWatch(config_.limits, request); !wrong.ok()) return {wrong};
  if (request.watch == 0 || request.close) return {OpenOrClose(caller, request)};
  const WatcherId watcher{request.watch};
  auto taken = TakeEvents(caller, watcher);
  if (!taken.ok()) return {taken.status()};
  if (*taken) return {**std::move(taken)};
  if (request.timeout_ms == 0) return {Opened(watcher)};

  auto waits = admission_.WaiterOf(caller, bytes.size());
  if (!waits.ok()) return {waits.status()};
  Waiter waiter = *std::move(waits);
  // The wait of a stream ends with the client's call.
  if (caller.door == Door::kLifeline) waiter.deadline = admission_.DeadlineOf(request.timeout_ms);
  const Reply reply = later();
  waiter.retry = [this, caller, watcher, reply](bool) -> Deliver {
    if (admission_.draining()) return nullptr;
    auto events = TakeEvents(caller, watcher);
    if (events.ok() && !*events) return nullptr;
    return Delivery(reply, events.ok() ? Result<Answer>(**std::move(events)) : Result<Answer>(events.status()));
  };
  waiter.expire = [this, watcher, reply] {
    if (const Status draining = admission_.CheckNotDraining(); !draining.ok()) return reply(draining);
    reply(Opened(watcher));
  };
  const auto place = line_.WaitInQueue(QueueOf(watcher), std::move(waiter));
  if (!place.ok()) return reply(place.status()), Served{};
  return {{}, *place};
}

// Runs on the thread that waits for events. A thread that causes an event only queues it.
void WatchVerbs::SpreadNews() {
  ::pthread_setname_np(::pthread_self(), "ab-events");
  for (;;) {
    const std::vector<WatcherId> news = broker_.events().WaitForNews();
    if (news.empty()) return;
    for (const WatcherId watcher : news) line_.ServeQueue(QueueOf(watcher));
  }
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/watch_verbs.h"

#include <pthread.h>

#include <memory>
#include <utility>
#include <vector>

#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"

namespace arraybridge {
namespace {

constexpr uint64_t kWatchQueues = 1ull << 63;  // the small numbers belong to channels

uint64_t QueueOf(WatcherId watcher) { return kWatchQueues | Number(watcher); }

EventFilter FilterOf(const v1::WatchRequest& request) {
  EventFilter filter;
  for (const int kind : request.kinds()) filter.kinds |= 1u << static_cast<unsigned>(kind);
  filter.ns = request.namespace_();
  filter.name_prefix = request.name_prefix();
  return filter;
}

v1::WatchResponse Opened(WatcherId watcher) {
  v1::WatchResponse opened;
  opened.set_watch(Number(watcher));
  return opened;
}

}  // namespace

WatchVerbs::WatchVerbs(const Config& config, Broker& broker, const Admission& admission, WaitingLine& line)
    : config_(config), broker_(broker), admission_(admission), line_(line), news_([this] { SpreadNews(); }) {}

void WatchVerbs::Stop() {
  broker_.events().Stop();
  news_.join();
}

Result<v1::WatchResponse> WatchVerbs::TakeEvents(const Caller& caller, WatcherId watcher) {
  const auto taken = broker_.events().Take(caller.session, watcher, AnswerBytesMax(config_.limits));
  if (!taken.ok()) return taken.status();
  v1::WatchResponse answer = Opened(watcher);
  for (const auto& event : *taken) Fill(answer.add_events(), *event);
  return answer;
}

Result<v1::WatchResponse> WatchVerbs::OpenOrClose(const Caller& caller, const v1::WatchRequest& request) {
  const WatcherId watcher{request.watch()};
  if (request.close()) {
    if (CloseWatch(caller, watcher)) return Opened(watcher);
    return NotFound("this watch is not open").Because("WATCH_NOT_OPEN");
  }
  const auto opened = broker_.OpenWatch(caller.session, FilterOf(request));
  if (!opened.ok()) return opened.status();
  return Opened(*opened);
}

bool WatchVerbs::CloseWatch(const Caller& caller, WatcherId watcher) {
  if (!broker_.events().Close(caller.session, watcher)) return false;
  line_.ServeQueue(QueueOf(watcher));
  return true;
}

WaiterId WatchVerbs::Watch(const Caller& caller, const v1::WatchRequest& request,
                           const Reply<v1::WatchResponse>& reply) {
  const auto answered = [&](Result<v1::WatchResponse> message) {
    if (!message.ok()) return reply(message.status()), WaiterId{};
    return reply(Answer<v1::WatchResponse>{*std::move(message), {}}), WaiterId{};
  };
  if (!caller.hears && !request.close()) return answered(InvalidArgument("Watch must want an answer"));
  if (const Status draining = admission_.CheckNotDraining(); !draining.ok()) return answered(draining);
  if (const Status wrong = CheckWatch(config_.limits, request); !wrong.ok()) return answered(wrong);
  if (request.watch() == 0 || request.close()) return answered(OpenOrClose(caller, request));
  const WatcherId watcher{request.watch()};
  auto taken = TakeEvents(caller, watcher);
  if (!taken.ok() || taken->events_size() > 0 || request.timeout_ms() == 0) return answered(std::move(taken));

  auto waits = admission_.WaiterOf(caller, request.ByteSizeLong());
  if (!waits.ok()) return reply(waits.status()), WaiterId{};
  Waiter waiter = *std::move(waits);
  // The wait of a stream ends with the client's call.
  if (caller.door == Door::kLifeline) waiter.deadline = admission_.DeadlineOf(request.timeout_ms());
  waiter.retry = [this, caller, watcher, reply](bool) -> Deliver {
    if (admission_.draining()) return nullptr;
    auto events = TakeEvents(caller, watcher);
    if (events.ok() && events->events_size() == 0) return nullptr;
    if (!events.ok()) return [reply, why = std::make_shared<Status>(events.status())] { reply(std::move(*why)); };
    const auto answer = std::make_shared<Answer<v1::WatchResponse>>();
    answer->message = *std::move(events);
    return [reply, answer] { reply(std::move(*answer)); };
  };
  waiter.expire = [this, watcher, reply] {
    if (const Status draining = admission_.CheckNotDraining(); !draining.ok()) return reply(draining);
    reply(Answer<v1::WatchResponse>{Opened(watcher), {}});
  };
  const auto place = line_.WaitInQueue(QueueOf(watcher), std::move(waiter));
  if (!place.ok()) return answered(place.status());
  return *place;
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

}  // namespace arraybridge

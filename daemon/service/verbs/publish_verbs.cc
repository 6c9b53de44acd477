// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/publish_verbs.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/share_wire.h"
#include "proto/boundary/failpoint.h"
#include "proto/boundary/frame.h"

namespace arraybridge::daemon {
namespace {

constexpr std::chrono::milliseconds kLateAnswer{4000};  // for the failpoint: longer than the wait of its test's clients

// A publish that may sleep or wait is not served here, because other threads wait for the queue.
Status CheckUnwaited(const wire::PublishRequest& request) {
  if (!request.sealed && request.channel == 0) return Ok();
  return InvalidArgument("a sealed share, or one that is sent into a channel, needs a waited Publish")
      .Because("NEEDS_A_CALL");
}

}  // namespace

void PublishVerbs::Stop() {
  sealer_.Stop();
  to_seal_.Stop();
}

Result<PublishedShare> PublishVerbs::Record(SessionId session, const wire::PublishRequest& request, uint64_t number) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckPublish(config_.limits, request));
  PublishCall call = CallOf(request);
  call.request = number;
  auto published = broker_.Publish(session, std::move(call));
  if (published.ok() && published->sweep_at) reclaimer_.sweeper().At(*published->sweep_at);
  return published;
}

Result<Answer> PublishVerbs::Publish(const Caller& caller, const wire::PublishRequest& request) {
  ServeQueued(caller.session, request.namespace_);
  AB_ASSIGN_OR_RETURN(auto published, Record(caller.session, request, caller.request));
  if (HasEvent(request) && Failpoint("late_answer")) std::this_thread::sleep_for(kLateAnswer);
  if (line_.waits_for_names()) AnnounceName(caller.session, request.namespace_, published.name);
  if (request.replace) reclaimer_.Reclaim();  // the bytes of the replaced share may be free now
  return handover_.Published(caller, published);
}

std::optional<Answer> PublishVerbs::AnswerAgain(const Caller& caller) {
  std::vector<ChannelId> put_back;
  auto published = broker_.TakeBackUnanswered(caller.session, caller.request, &put_back);
  for (const ChannelId channel : put_back) ServeChannel(line_, broker_, channel);  // others may wait for the share
  if (!published) return std::nullopt;
  return handover_.Published(caller, *published);
}

Served PublishVerbs::PublishSealed(const Caller& caller, std::string_view request, std::string_view ns,
                                   const Later& later) {
  auto waits = admission_.WaiterOf(caller, request.size());
  if (!waits.ok()) return {waits.status()};
  const auto bytes = std::make_shared<const std::string>(request);
  const Reply reply = later();
  Waiter waiter = *std::move(waits);  // without a deadline: it waits only for its turn
  const uint32_t uid = waiter.uid;
  waiter.retry = [this, caller, bytes, reply](bool) -> Deliver {
    const auto again = wire::Decode<wire::PublishRequest>(*bytes);
    return Delivery(reply, Publish(caller, *again));
  };
  waiter.expire = [this, reply] { reply(admission_.CheckNotDraining()); };  // no deadline ends its wait
  const auto place = to_seal_.WaitForMemory(uid, NamespaceNameOf(ns), std::move(waiter));
  if (!place.ok()) return reply(place.status()), Served{};
  if (seal_posted_.exchange(true)) return {};
  sealer_.Post([this] {
    seal_posted_.store(false);
    to_seal_.ServeMemory();
  });
  return {};
}

// Requests that wait for the names are served after the lock of the queue is released: their retries may call any verb.
uint64_t PublishVerbs::ServePublishes(const OpenQueue& of, uint64_t most, SessionQueue::Others others) {
  std::vector<std::string> names;
  bool replaced = false;
  Clock::time_point begun = Clock::now();
  const auto publish = [&](uint64_t request, std::string_view message) -> Status {
    auto decoded = wire::Decode<wire::PublishRequest>(message);
    if (decoded.ok()) decoded->namespace_ = of.ns;
    Status checked = decoded.ok() ? CheckUnwaited(*decoded) : decoded.status();
    auto published = checked.ok() ? Record(of.session, *decoded, request) : Result<PublishedShare>(std::move(checked));
    const auto now = Clock::now();
    counts_.traffic.Count(Door::kLifeline, static_cast<uint16_t>(Verb::kPublish), published.status().code(),
                          now - begun);
    begun = now;
    if (!published.ok())
      return counts_.CountRefusal(of.session, Verb::kPublish, published.status()), published.status();
    replaced = replaced || decoded->replace;
    if (line_.waits_for_names()) names.push_back(std::move(published->name));
    return Ok();
  };
  const auto served = of.queue->ServePublishes(most, others, publish);
  for (const std::string& name : names) AnnounceName(of.session, of.ns, name);
  if (replaced) reclaimer_.Reclaim();
  if (served.ok()) return *served;
  cuts_.Cut(of.session, served.status().message());
  return 0;
}

bool PublishVerbs::ServeQueued(SessionId session, std::optional<std::string_view> ns) {
  if (!broker_.has_queues()) return false;
  for (const OpenQueue& each : broker_.PendingQueues(session, ns)) {
    ServePublishes(each, session_queue::Format::kSlots, SessionQueue::Others::kDefer);
  }
  // Also if nothing was pending: another thread may have served a queue since the caller looked.
  return true;
}

void PublishVerbs::AnnounceName(SessionId maker, std::string_view ns, std::string_view name) {
  const auto owner = broker_.OwnerOf(maker, ns, Right::kRead);
  if (owner.ok()) line_.NamePublished(*owner, NamespaceNameOf(ns), name);
}

}  // namespace arraybridge::daemon

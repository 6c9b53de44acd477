// Unwaited publishes: each is a Publish whose success is not answered. A request that looks for a name, takes one or
// lists them finds what stands in the queues of the namespace, since that is served first.
#include <utility>
#include <vector>

#include "daemon/service/verbs.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

// A publish that may sleep, or wait, is not served while other threads wait for the queue.
Status CheckUnwaited(const PublishAsked& asked) {
  if (!asked.sealed && asked.channel == 0) return Ok();
  return InvalidArgument("a share that is sealed, or sent into a channel, is published by a waited request")
      .Because("NEEDS_A_CALL");
}

}  // namespace

// Requests that wait for the names are served after the queue's lock is free: their turn may lead anywhere.
uint64_t Verbs::ServePublishes(const OpenQueue& of, uint64_t most, SessionQueue::Others others) {
  std::vector<std::string> names;
  bool replaced = false;
  Clock::time_point begun = Clock::now();
  const auto publish = [&](std::string_view message) -> Status {
    auto asked = ReadPublish(message);
    if (asked.ok()) asked->ns = of.ns;
    Status checked = asked.ok() ? CheckUnwaited(*asked) : asked.status();
    auto published = checked.ok() ? Enter(of.session, *asked) : Result<PublishedShare>(std::move(checked));
    const auto now = Clock::now();
    traffic_.Count(Door::kLifeline, static_cast<uint16_t>(Verb::kPublish), published.status().code(), now - begun);
    begun = now;
    if (!published.ok()) return CountRefusal(of.session, Verb::kPublish, published.status()), published.status();
    replaced = replaced || asked->replace;
    if (line_.waits_for_names()) names.push_back(std::move(published->name));
    return Ok();
  };
  const auto served = of.queue->ServePublishes(most, others, publish);
  for (const std::string& name : names) TellWhoWaitsFor(of.session, of.ns, name);
  if (replaced) Reclaim();
  if (served.ok()) return *served;
  Cut(of.session, served.status().message());
  return 0;
}

bool Verbs::ServeQueued(SessionId session, std::optional<std::string_view> ns) {
  if (!broker_.has_queues()) return false;
  // Another thread may have served what stood there: then it has been served now all the same.
  const std::vector<OpenQueue> pending = broker_.PendingQueues(session, ns);
  for (const OpenQueue& each : pending) {
    ServePublishes(each, session_queue::Format::kSlots, SessionQueue::Others::kDefer);
  }
  return !pending.empty();
}

}  // namespace arraybridge

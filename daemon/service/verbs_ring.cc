// What is published without calls: entries of a ring become requests, and each of them is a Publish that nobody hears.
// Who looks for a name, takes one or lists them finds what stands in the rings of the namespace, since it is taken
// first.
#include <utility>
#include <vector>

#include "daemon/service/verbs.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

// What may sleep, or wait, is not done while others wait for the ring.
Status CheckEntry(const PublishAsked& asked) {
  if (!asked.sealed && asked.channel == 0) return Ok();
  return InvalidArgument("a share that is sealed, or sent into a channel, is published by a call")
      .Because("NEEDS_A_CALL");
}

}  // namespace

Result<std::unique_ptr<SessionMailbox>> Verbs::MakeMailbox(SessionId session) const {
  AB_RETURN_IF_ERROR(CheckNotDraining());
  return broker_.MakeMailbox(session);
}

std::shared_ptr<const SessionRing> Verbs::RingOf(SessionId session) const {
  auto found = broker_.RingOf(session);
  return found ? std::make_shared<const SessionRing>(*std::move(found)) : nullptr;
}

// Who waits for a name is told when the ring is free again: its turn may lead anywhere.
uint64_t Verbs::DrainRing(const SessionRing& of, uint64_t most) {
  std::vector<std::string> names;
  bool replaced = false;
  Clock::time_point begun = Clock::now();
  const auto take = [&](std::string_view message) -> std::optional<Status> {
    auto asked = ReadPublish(message);
    if (!asked.ok()) return std::nullopt;
    asked->ns = of.ns;
    Status checked = CheckEntry(*asked);
    auto published = checked.ok() ? Enter(of.session, *asked) : Result<PublishedShare>(std::move(checked));
    const auto now = Clock::now();
    traffic_.Count(Door::kLifeline, static_cast<uint16_t>(Verb::kPublish), published.status().code(), now - begun);
    begun = now;
    if (!published.ok()) return CountRefusal(of.session, Verb::kPublish, published.status()), published.status();
    replaced = replaced || asked->replace;
    if (line_.waits_for_names()) names.push_back(std::move(published->name));
    return Ok();
  };
  const auto drained = of.ring->Drain(most, take);
  for (const std::string& name : names) TellWhoWaitsFor(of.session, of.ns, name);
  if (replaced) Reclaim();
  if (drained.ok()) return *drained;
  Cut(of.session, drained.status().message());
  return 0;
}

bool Verbs::DrainRings(SessionId session, std::optional<std::string_view> ns) {
  if (!broker_.has_rings()) return false;
  const std::vector<SessionRing> pending = broker_.PendingRings(session, ns);
  for (const SessionRing& each : pending) DrainRing(each, ring::kEntries);
  return !pending.empty();
}

}  // namespace arraybridge

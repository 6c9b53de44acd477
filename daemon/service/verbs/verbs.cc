// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/verbs.h"

#include <utility>

namespace arraybridge::daemon {
namespace {

template <class Request>
Result<Request> Read(std::string_view bytes) {
  if constexpr (std::derived_from<Request, google::protobuf::MessageLite>) {
    Request request;
    if (request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return request;
    return InvalidArgument("the bytes are no ", request.GetTypeName());
  } else {
    return wire::Decode<Request>(bytes);
  }
}

// A verb that answers at once.
template <class Noun, class Request>
Result<Served> Now(const Caller& caller, std::string_view bytes, Noun& noun,
                   Result<Answer> (Noun::*verb)(const Caller&, const Request&)) {
  AB_ASSIGN_OR_RETURN(const auto request, Read<Request>(bytes));
  return Served{(noun.*verb)(caller, request)};
}

// A verb that may wait.
template <class Noun, class Request>
Result<Served> Waiting(const Caller& caller, std::string_view bytes, const Later& later, Noun& noun,
                       Served (Noun::*verb)(const Caller&, const Request&, std::string_view, const Later&)) {
  AB_ASSIGN_OR_RETURN(const auto request, Read<Request>(bytes));
  return (noun.*verb)(caller, request, bytes, later);
}

}  // namespace

Verbs::Verbs(const Config& config, Broker& broker, std::function<void()> allocated, NoGpu no_gpu, Life life)
    : admission_(config, broker),
      line_(config.limits),
      counts_(broker),
      reclaimer_(broker, line_, cuts_),
      handover_(config, broker, line_, reclaimer_),
      parts_{config, broker, here_, admission_, line_, reclaimer_, handover_, counts_, cuts_},
      publishes(parts_),
      tiers(parts_, publishes),
      shares(parts_, publishes, channels, tiers),
      channels(parts_),
      arenas(parts_, channels, tiers, std::move(allocated)),
      lists(parts_, std::move(no_gpu), std::move(life), publishes),
      watches(parts_),
      sessions(parts_, publishes, tiers, channels, lists) {}

Result<Served> Verbs::Serve(const Caller& caller, Verb verb, std::string_view bytes, const Later& later) {
  switch (verb) {
    case Verb::kGetServerInfo:
      return Now(caller, bytes, lists, &ListVerbs::AnswerServerInfo);
    case Verb::kAllocate:
      return Waiting(caller, bytes, later, arenas, &ArenaVerbs::Allocate);
    case Verb::kMapped:
      return Now(caller, bytes, arenas, &ArenaVerbs::Mapped);
    case Verb::kPublish:
      return Waiting(caller, bytes, later, *this, &Verbs::Publish);
    case Verb::kAcquire:
      return Waiting(caller, bytes, later, shares, &ShareVerbs::Acquire);
    case Verb::kExport:
      return Now(caller, bytes, arenas, &ArenaVerbs::Export);
    case Verb::kRelease:
      return Now(caller, bytes, shares, &ShareVerbs::Release);
    case Verb::kWithdraw:
      return Now(caller, bytes, shares, &ShareVerbs::Withdraw);
    case Verb::kList:
      return Now(caller, bytes, lists, &ListVerbs::List);
    case Verb::kGetStats:
      return Now(caller, bytes, lists, &ListVerbs::GetStats);
    case Verb::kRedeem:
      return Now(caller, bytes, arenas, &ArenaVerbs::Redeem);
    case Verb::kBrowse:
      return Now(caller, bytes, arenas, &ArenaVerbs::Browse);
    case Verb::kOpenChannel:
      return Now(caller, bytes, channels, &ChannelVerbs::OpenChannel);
    case Verb::kCloseChannel:
      return Now(caller, bytes, channels, &ChannelVerbs::CloseChannel);
    case Verb::kReceive:
      return Waiting(caller, bytes, later, channels, &ChannelVerbs::Receive);
    case Verb::kWatch:
      return Waiting(caller, bytes, later, watches, &WatchVerbs::Watch);
    case Verb::kInspect:
      return Now(caller, bytes, lists, &ListVerbs::Inspect);
    case Verb::kClaim:
      return Waiting(caller, bytes, later, shares, &ShareVerbs::Claim);
    case Verb::kTier:
      return Waiting(caller, bytes, later, tiers, &TierVerbs::Tier);
    case Verb::kOpenSession:
    case Verb::kDoorbell:
    case Verb::kRecovered:
      break;
  }
  return Served{Unimplemented("verb ", static_cast<unsigned>(verb), " is unknown to this broker")};
}

// A permanent seal may sleep, so it runs on another thread.
Served Verbs::Publish(const Caller& caller, const wire::PublishRequest& request, std::string_view bytes,
                      const Later& later) {
  if (request.channel != 0) return channels.Send(caller, request, bytes, later);
  if (request.sealed) return publishes.PublishSealed(caller, bytes, request.namespace_, later);
  return {publishes.Publish(caller, request)};
}

void Verbs::TakeBack(const Caller& caller, Verb verb, std::string_view answer) {
  if (verb == Verb::kAllocate) arenas.TakeBackAllocated(caller, answer);
  if (verb == Verb::kExport) arenas.TakeBackExported(caller, answer);
  if (verb == Verb::kClaim) shares.TakeBackClaimed(caller, answer);
  if (verb == Verb::kAcquire || verb == Verb::kReceive) handover_.TakeBack(caller, answer);
}

// The two threads for memory post tasks to each other, and the thread for seals posts to the slow one.
Verbs::~Verbs() {
  watches.Stop();
  tiers.Stop();
  reclaimer_.StopLarge();
  publishes.Stop();
  reclaimer_.StopSlow();
  line_.Stop();
}

void Verbs::Drain() {
  admission_.Drain();
  line_.ExpireAll();
  publishes.ExpireAll();
  tiers.ExpireAll();
}

void Verbs::WaitIdle(Clock::time_point deadline) {
  publishes.WaitIdle(deadline);
  reclaimer_.WaitIdle(deadline);
}

}  // namespace arraybridge::daemon

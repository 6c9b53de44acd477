// SPDX-License-Identifier: Apache-2.0
// How a direct channel ends. Each entry that stands there becomes a Publish into the channel, as if its sender had
// called, and the channel is like any other. It ends when a session joins, an end closes or its session ends, a share
// is sent that no entry can carry, or a receiver asks for it.
#include <utility>

#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/share_wire.h"
#include "proto/boundary/frame.h"

namespace arraybridge::daemon {
namespace {

// The Publish that the entry stands for; views of the entry. INVALID_ARGUMENT: the description is malformed.
Result<wire::PublishRequest> RequestOf(const DirectChannelRecord& of, const direct_channel::Entry& entry) {
  AB_ASSIGN_OR_RETURN(const auto share, wire::Decode<wire::Share>(direct_channel::DescriptionOf(entry)));
  const direct_channel::Header header = direct_channel::HeaderOf(entry);
  return wire::PublishRequest{.namespace_ = of.ns,
                              .arena = header.arena,
                              .arena_generation = header.generation,
                              .offset = header.offset,
                              .size = header.size,
                              .specs = share.specs,
                              .structure = share.structure,
                              .metadata = share.metadata,
                              .channel = Number(of.sending)};
}

}  // namespace

bool ChannelVerbs::IsDirectRefusal(const Status& refusal) { return refusal.reason() == "CHANNEL_IS_DIRECT"; }

// A draining broker publishes the entry, too: it was sent before.
bool ChannelVerbs::PublishEntry(const DirectChannelRecord& of, const direct_channel::Entry& entry, uint64_t number) {
  const auto request = RequestOf(of, entry);
  if (!request.ok()) return false;
  const Clock::time_point begun = Clock::now();
  const auto published = [&]() -> Result<PublishedShare> {
    AB_RETURN_IF_ERROR(CheckPublish(config_.limits, *request));
    PublishCall call = CallOf(*request);
    call.from_direct = true;
    call.entry = number;
    call.sent_time_ns = direct_channel::HeaderOf(entry).time_ns;
    return broker_.Publish(of.sender, std::move(call));
  }();
  counts_.traffic.Count(Door::kLifeline, static_cast<uint16_t>(Verb::kPublish), published.status().code(),
                        Clock::now() - begun);
  if (published.ok()) return true;
  counts_.CountRefusal();
  const RangeOfArena range{ArenaId{request->arena}, request->offset, request->size};
  broker_.KeepReturned(of.sender, {&range, 1});
  return false;
}

void ChannelVerbs::EndDirectChannel(const std::shared_ptr<const DirectChannelRecord>& of) {
  if (of == nullptr) return;
  of->pages->Revoke(
      [&](const direct_channel::Entry& entry, uint64_t number) { return PublishEntry(*of, entry, number); },
      [&](bool complete, uint64_t taken) { broker_.DirectChannelEnded(*of, complete, taken); });
  ServeChannel(line_, broker_, of->channel);
}

// More than once: another thread may be revoking it, or the ends may have made a new one meanwhile.
Result<PublishedShare> ChannelVerbs::PublishInto(const Caller& caller, const PublishCall& call) {
  while (true) {
    auto published = broker_.Publish(caller.session, call);
    if (published.ok() || !IsDirectRefusal(published.status())) return published;
    EndDirectChannel(broker_.DirectChannelOf(caller.session, call.channel));
  }
}

Result<Answer> ChannelVerbs::DirectChannelMapped(const Caller& caller, const wire::MappedRequest& request) {
  const auto channel = broker_.DirectChannelMapped(caller.session, ChannelEndId{request.direct_channel_of},
                                                   request.direct_channel_number);
  if (!channel.ok()) return channel.status();
  ServeChannel(line_, broker_, *channel);  // waiting receivers are told to use the direct channel
  return Answer{};
}

}  // namespace arraybridge::daemon

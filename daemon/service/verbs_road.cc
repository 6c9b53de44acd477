// What is sent without calls: how a road ends. Each entry that stands there becomes a Publish into the channel, as if
// its sender had called, and the channel is like any other. Who joins, closes, ends, or sends what no entry can say
// ends it; so does a receiver that asks.
#include <utility>

#include "daemon/service/message_limits.h"
#include "daemon/service/share_wire.h"
#include "daemon/service/verbs.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

// False: the description is none.
bool Fill(v1::PublishRequest* request, const ChannelRoad& of, const road::Message& entry) {
  v1::Share said;
  const std::string_view text = entry.text();
  if (!said.ParseFromArray(text.data(), static_cast<int>(text.size()))) return false;
  request->Clear();
  request->set_namespace_(of.ns);
  request->set_arena(entry.arena);
  request->set_arena_generation(entry.generation);
  request->set_offset(entry.offset);
  request->set_size(entry.size);
  request->set_channel(Number(of.sending));
  request->mutable_specs()->Swap(said.mutable_specs());
  request->mutable_structure()->swap(*said.mutable_structure());
  request->mutable_metadata()->swap(*said.mutable_metadata());
  return true;
}

}  // namespace

bool Verbs::IsOnRoad(const Status& refusal) { return refusal.reason() == "CHANNEL_ON_ROAD"; }

// What was sent is published even if the broker drains: it was sent before.
bool Verbs::Enter(const ChannelRoad& of, const road::Message& entry) {
  v1::PublishRequest request;
  if (!Fill(&request, of, entry)) return false;
  const Clock::time_point begun = Clock::now();
  const auto published = [&]() -> Result<PublishedShare> {
    AB_RETURN_IF_ERROR(CheckPublish(config_.limits, request));
    PublishCall call = CallOf(request);
    call.from_road = true;
    return broker_.Publish(of.sender, std::move(call));
  }();
  traffic_.Count(Door::kLifeline, static_cast<uint16_t>(Verb::kPublish), published.status().code(),
                 Clock::now() - begun);
  if (published.ok()) return true;
  CountRefusal();
  const RangeOfArena range{ArenaId{entry.arena}, entry.offset, entry.size};
  broker_.KeepReturned(of.sender, {&range, 1});
  return false;
}

void Verbs::EndRoad(const std::shared_ptr<const ChannelRoad>& of) {
  if (of == nullptr) return;
  of->road->Revoke([&](const road::Message& entry) { return Enter(*of, entry); },
                   [&](bool complete) { broker_.RoadEnded(*of, complete); });
  ServeChannel(of->channel);
}

// Until it is refused no more: another thread may be ending it, or the ends have made another one meanwhile.
Result<PublishedShare> Verbs::PublishInto(const Caller& caller, const PublishCall& call) {
  while (true) {
    auto published = broker_.Publish(caller.session, call);
    if (published.ok() || !IsOnRoad(published.status())) return published;
    EndRoad(broker_.RoadOf(caller.session, call.channel));
  }
}

Result<Answer<v1::MappedResponse>> Verbs::RoadMapped(const Caller& caller, ChannelEndId end) {
  const auto channel = broker_.RoadMapped(caller.session, end);
  if (!channel.ok()) return channel.status();
  ServeChannel(*channel);  // who waits to receive looks at the road from now on
  return Answer<v1::MappedResponse>{};
}

}  // namespace arraybridge

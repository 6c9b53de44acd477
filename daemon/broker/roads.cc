// The Broker's part in sending without calls: between whom there is a road, when it is used, and who still waits for
// what was received on one. Ending one is the service's, since what stands there is published.
#include <algorithm>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

Status NoRoad(std::string_view why) { return NotFound("no road: ", why).Because("NO_ROAD"); }

RoadSide SideOf(ChannelRole role) { return role == ChannelRole::kSender ? RoadSide::kSender : RoadSide::kReceiver; }

}  // namespace

// The channel of an end that may have a road. Makes it of `fresh`, if it has none and that is given.
Result<Channel*> Broker::State::MakeRoad(const Session& session, const ChannelEnd& end, std::shared_ptr<Road>* fresh) {
  Channel& channel = *end.channel;
  if (channel.road != nullptr || *fresh == nullptr) return &channel;
  ChannelRoad made{.channel = channel.id(), .ns = channel.ns()->name(), .uid = session.peer.uid, .road = *fresh};
  for (const auto& [id, other] : sessions) {
    for (const auto& [number, its] : other->ends) {
      if (its.channel != &channel) continue;
      if (other->peer.door != Door::kLifeline) return NoRoad("an end is not at a lifeline");
      const bool sends = its.role == ChannelRole::kSender;
      (sends ? made.sender : made.receiver) = id;
      (sends ? made.sending : made.receiving) = number;
    }
  }
  channel.road = std::make_shared<ChannelRoad>(std::move(made));
  roads.push_back(channel.road);
  fresh->reset();
  return &channel;
}

Result<UniqueFd> Broker::ExportRoad(SessionId session, ChannelEndId id, RoadPart part) {
  State& state = *state_;
  std::shared_ptr<Road> road;
  std::shared_ptr<Road> fresh;  // dies after the lock if another came first
  RoadSide side{};
  while (road == nullptr) {
    uint64_t capacity = 0;
    {
      const MutexLock lock(state.mutex);
      const Session* const found = state.FindSession(session);
      if (found == nullptr) return NoSession();
      const auto end = found->ends.find(id);
      if (end == found->ends.end()) return NotFound("this end of a channel is not open").Because("CHANNEL_NOT_OPEN");
      const Channel& channel = *end->second.channel;
      if (channel.road == nullptr && part != RoadPart::kOwn) return NoRoad("it has ended");
      if (channel.senders() != 1 || channel.receivers() != 1) return NoRoad("not one sender and one receiver");
      if (channel.capacity() > road::kCapacityMax) return NoRoad("the channel is too large");
      const uint64_t most = state.config.limits.roads_per_uid;
      const auto its = [&](const auto& each) { return each->uid == found->peer.uid; };
      if (channel.road == nullptr && static_cast<uint64_t>(std::ranges::count_if(state.roads, its)) >= most) {
        return AtLimit("TOO_MANY_ROADS", "roads_per_uid", most);
      }
      const auto made = state.MakeRoad(*found, end->second, &fresh);
      if (!made.ok()) return made.status();
      if (channel.road != nullptr) road = channel.road->road;
      side = SideOf(end->second.role);
      capacity = channel.capacity();
    }
    if (road != nullptr) break;
    auto created = Road::Create(capacity);
    if (!created.ok()) return created.status();
    fresh = *std::move(created);
  }
  return road->Export(side, part);
}

Result<ChannelId> Broker::RoadMapped(SessionId session, ChannelEndId end) {
  State& state = *state_;
  const auto of = RoadOf(session, end);
  if (of == nullptr) return NoRoad("it has ended");
  AB_RETURN_IF_ERROR(of->road->Seal(of->sending == end ? RoadSide::kSender : RoadSide::kReceiver));
  const MutexLock lock(state.mutex);
  const auto channel = state.channels.find(of->channel);
  if (channel == state.channels.end() || channel->second->road != of) return NoRoad("it has ended");
  ChannelRoad& road = *channel->second->road;
  if (road.open || !road.road->sealed()) return of->channel;
  const Session* const receiver = state.FindSession(road.receiver);
  AB_CHECK(receiver != nullptr);  // with it the road had ended
  road.road->Open(receiver->ends.at(road.receiving).received + channel->second->queued());
  road.open = true;
  return of->channel;
}

std::shared_ptr<const ChannelRoad> Broker::RoadOf(SessionId session, ChannelEndId end) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->FindSession(session);
  if (found == nullptr) return nullptr;
  const auto open = found->ends.find(end);
  return open == found->ends.end() ? nullptr : open->second.channel->road;
}

std::shared_ptr<const ChannelRoad> Broker::RoadIn(SessionId session, std::string_view ns,
                                                  std::string_view channel) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->FindSession(session);
  if (found == nullptr) return nullptr;
  const auto key = state_->KeyOf(*found, ns, Right::kWrite);
  const Namespace* const owner = key.ok() ? state_->FindNamespace(*key) : nullptr;
  if (owner == nullptr) return nullptr;
  const auto known = owner->channels.find(channel);
  return known == owner->channels.end() ? nullptr : known->second->road;
}

std::vector<std::shared_ptr<const ChannelRoad>> Broker::RoadsOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  std::vector<std::shared_ptr<const ChannelRoad>> its;
  for (const auto& each : state_->roads) {
    if (each->sender == session || each->receiver == session) its.push_back(each);
  }
  return its;
}

void Broker::RoadEnded(const ChannelRoad& road, bool complete) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const auto found = state.channels.find(road.channel);
  if (found == state.channels.end() || found->second->road.get() != &road) return;
  if (!complete) found->second->MissSome();
  const bool used = road.open;  // then its sender says when it waits for nothing more
  const std::shared_ptr<ChannelRoad> its = std::move(found->second->road);
  found->second->road = nullptr;
  if (!used) std::erase(state.roads, its);
}

void Broker::ForgetRoads(SessionId sender, std::span<const uint64_t> ends) {
  State& state = *state_;
  std::vector<std::shared_ptr<ChannelRoad>> forgotten;  // die after the lock
  const MutexLock lock(state.mutex);
  for (const uint64_t end : ends) {
    const auto is_it = [&](const auto& each) { return each->sender == sender && Number(each->sending) == end; };
    const auto found = std::ranges::find_if(state.roads, is_it);
    if (found == state.roads.end()) continue;
    const auto channel = state.channels.find((*found)->channel);
    const bool stands = channel != state.channels.end() && channel->second->road == *found;
    if (stands) continue;
    forgotten.push_back(std::move(*found));
    state.roads.erase(found);
  }
}

std::vector<std::shared_ptr<ChannelRoad>> Broker::State::TakeRoads(SessionId session) {
  std::vector<std::shared_ptr<ChannelRoad>> taken;
  std::erase_if(roads, [&](std::shared_ptr<ChannelRoad>& each) {
    if (each->receiver == session) each->road->MarkGone();
    if (each->sender != session && each->receiver != session) return false;
    taken.push_back(std::move(each));
    return true;
  });
  return taken;
}

// The sender's bytes may be looked at by whom it sends them to.
bool Broker::State::OnRoadOf(const Session& session, ChannelEndId receiving, const Arena& arena) const {
  const auto end = session.ends.find(receiving);
  if (end == session.ends.end() || end->second.channel->road == nullptr) return false;
  const ChannelRoad& road = *end->second.channel->road;
  const bool receives = road.open && road.receiving == receiving;
  const bool sends =
      arena.writer != nullptr && arena.writer->id == road.sender && arena.ns() == end->second.channel->ns();
  // Host memory alone stands on roads: other kinds are not for everybody.
  return receives && sends && arena.kind() == HandleKind::kMemfd && session.peer.Opens(arena.kind()) &&
         arena.immutability.has_value();
}

}  // namespace arraybridge

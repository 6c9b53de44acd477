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

// Without the road itself. REQUIRES: the channel has one sender and one receiver.
Result<ChannelRoad> Broker::State::PlanRoad(const Channel& channel) const {
  ChannelRoad planned{.channel = channel.id(), .ns = channel.ns()->name(), .road = nullptr};
  for (const Channel::Member& member : channel.members()) {
    const Session* const session = sessions.Find(member.session);
    if (session == nullptr) return NoRoad("an end is being closed");
    if (session->peer.door != Door::kLifeline) return NoRoad("an end is not at a lifeline");
    AB_RETURN_IF_ERROR(accounts.CheckDescriptors(*session, kDescriptorsOfRoad));
    const bool sends = member.role == ChannelRole::kSender;
    (sends ? planned.sender : planned.receiver) = member.session;
    (sends ? planned.sending : planned.receiving) = member.end;
    (sends ? planned.sender_uid : planned.receiver_uid) = session->peer.uid;
  }
  const uint64_t most = config.limits.roads_per_uid;
  if (std::max(roads.CountOf(planned.sender_uid), roads.CountOf(planned.receiver_uid)) >= most) {
    return AtLimit("TOO_MANY_ROADS", "roads_per_uid", most);
  }
  return planned;
}

Result<UniqueFd> Broker::ExportRoad(SessionId session, ChannelEndId id, RoadPart part) {
  State& state = *state_;
  std::shared_ptr<Road> road;
  std::shared_ptr<Road> fresh;  // made without the lock; dies after it if another came first
  RoadSide side{};
  while (road == nullptr) {
    uint64_t capacity = 0;
    uint64_t number = 0;
    {
      const MutexLock lock(state.mutex);
      const Session* const found = state.sessions.Find(session);
      if (found == nullptr) return NoSession();
      const auto end = found->ends.find(id);
      if (end == found->ends.end()) return NotFound("this end of a channel is not open").Because("CHANNEL_NOT_OPEN");
      Channel& channel = *end->second.channel;
      if (channel.road == nullptr && part != RoadPart::kOwn) return NoRoad("it has ended");
      if (channel.senders() != 1 || channel.receivers() != 1) return NoRoad("not one sender and one receiver");
      if (channel.capacity() > road::kCapacityMax) return NoRoad("the channel is too large");
      if (channel.road == nullptr) {
        auto planned = state.PlanRoad(channel);
        if (!planned.ok()) return planned.status();
        if (fresh != nullptr) {
          planned->road = std::exchange(fresh, nullptr);
          channel.road = std::make_shared<ChannelRoad>(*std::move(planned));
          state.roads.Add(channel.road);
        } else {
          number = ++state.last_road;
        }
      }
      if (channel.road != nullptr) road = channel.road->road;
      side = SideOf(end->second.role);
      capacity = channel.capacity();
    }
    if (road != nullptr) break;
    auto created = Road::Create(capacity, number);
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
  Channel* const channel = state.channels.Find(of->channel);
  if (channel == nullptr || channel->road != of) return NoRoad("it has ended");
  ChannelRoad& road = *channel->road;
  if (road.open || !road.road->sealed()) return of->channel;
  const Session* const receiver = state.sessions.Find(road.receiver);
  AB_CHECK(receiver != nullptr);  // with it the road had ended
  road.road->Open(receiver->ends.at(road.receiving).received + channel->queued());
  road.open = true;
  return of->channel;
}

std::shared_ptr<const ChannelRoad> Broker::RoadOf(SessionId session, ChannelEndId end) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return nullptr;
  const auto open = found->ends.find(end);
  return open == found->ends.end() ? nullptr : open->second.channel->road;
}

std::shared_ptr<const ChannelRoad> Broker::RoadIn(SessionId session, std::string_view ns,
                                                  std::string_view channel) const {
  const MutexLock lock(state_->mutex);
  const Session* const found = state_->sessions.Find(session);
  if (found == nullptr) return nullptr;
  const auto key = state_->rights.KeyOf(found->peer, ns, Right::kWrite);
  const Namespace* const owner = key.ok() ? state_->namespaces.Find(*key) : nullptr;
  if (owner == nullptr) return nullptr;
  const auto known = owner->channels.find(channel);
  return known == owner->channels.end() ? nullptr : known->second->road;
}

std::vector<std::shared_ptr<const ChannelRoad>> Broker::RoadsOf(SessionId session) const {
  const MutexLock lock(state_->mutex);
  const auto its = state_->roads.Of(session);
  return {its.begin(), its.end()};
}

void Broker::RoadEnded(const ChannelRoad& road, bool complete) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Channel* const found = state.channels.Find(road.channel);
  if (found == nullptr || found->road.get() != &road) return;
  if (!complete) found->MissSome();
  const std::shared_ptr<ChannelRoad> its = std::exchange(found->road, nullptr);
  state.roads.End(*its);
  if (!its->open) state.roads.Remove(*its);  // else its sender says when it waits for nothing more
}

void Broker::ForgetRoads(SessionId sender, std::span<const uint64_t> numbers) {
  State& state = *state_;
  std::vector<std::shared_ptr<ChannelRoad>> forgotten;  // die after the lock
  const MutexLock lock(state.mutex);
  for (const uint64_t number : numbers) {
    auto road = state.roads.Find(sender, number);
    if (road == nullptr || !road->ended) continue;
    state.roads.Remove(*road);
    forgotten.push_back(std::move(road));
  }
}

std::vector<std::shared_ptr<ChannelRoad>> Broker::State::TakeRoads(SessionId session) {
  auto taken = roads.Of(session);
  for (const auto& each : taken) {
    if (each->receiver == session) each->road->MarkGone();
    roads.Remove(*each);
  }
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

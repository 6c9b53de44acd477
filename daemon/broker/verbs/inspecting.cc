// SPDX-License-Identifier: Apache-2.0
// Inspecting one share: its maker, its readers, and the handle that each session would get if it acquired the share
// now.
#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {
namespace {

uint64_t BornNs(Clock::time_point born) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto age = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - born);
  return static_cast<uint64_t>((std::chrono::duration_cast<std::chrono::nanoseconds>(now) - age).count());
}

Visit MakerOf(const Share& share) {
  const uint64_t born_ns = BornNs(share.born);
  return {{share.maker, share.maker_client, share.maker_process_id, share.maker_uid}, share.note, born_ns, born_ns, 0};
}

// In a shared namespace other users see that a share was made or read, and how, but not by which process.
void HideOthers(uint32_t asker, Inspected* inspected) {
  static const auto kNobody = std::make_shared<const std::string>();
  const auto hide = [&](Visit* visit) {
    if (visit->who.uid != asker) visit->who = {{}, kNobody, 0, visit->who.uid};
  };
  hide(&inspected->maker);
  for (Visit& reader : inspected->readers) hide(&reader);
}

}  // namespace

OfferRow Broker::State::OfferTo(const Session& session, const Share& share) const {
  OfferRow offer{VisitorOf(session), {}, false, false};
  const HandleKind kind = share.arena->kind();
  const Device& device = share.arena->device();
  if (!session.peer.MayOpen(kind, device)) {
    offer.why_not = session.peer.CannotOpen("it", kind, device).message();
  } else {
    offer.waits = !leases.CheckFence(session, share, false).ok();
    offer.gpus_unknown = !device.uuid.empty() && session.peer.gpus.empty();
  }
  return offer;
}

Result<Inspected> Broker::Inspect(SessionId session, std::string_view ns, const ShareKey& key) const {
  const State& state = *state_;
  Inspected inspected;
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(const Session* const asker, state.sessions.Get(session));
    AB_ASSIGN_OR_RETURN(const auto place, state.rights.KeyOf(asker->peer, ns, Right::kRead));
    const Share* const found = FindShare(state.namespaces.Find(place), key);
    if (found == nullptr) return NoShare(ns, key, state.config.limits);
    const Share& share = *found;
    inspected.row = state.RowOf(share, Clock::now(), asker);
    inspected.maker = MakerOf(share);
    if (share.history != nullptr) {
      inspected.readers = share.history->readers();
      inspected.forgotten = share.history->forgotten();
    }
    for (const auto& [id, one] : state.sessions.all()) {
      const NamespaceKey its{share.ns->uid(), share.ns->name()};
      if (one->peer.uid == asker->peer.uid && state.rights.MayUse(one->peer, its, Right::kRead))
        inspected.offers.push_back(state.OfferTo(*one, share));
    }
    HideOthers(asker->peer.uid, &inspected);
  }
  const std::vector<DeviceFacts> devices = Devices();
  const auto its = std::ranges::find(devices, inspected.row.handle.device, &DeviceFacts::device);
  if (its != devices.end()) inspected.device = *its;
  return inspected;
}

}  // namespace arraybridge::daemon

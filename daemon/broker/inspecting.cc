// What there is to know about one share: who made and read it, and what each session would get that acquires it now.
#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
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

}  // namespace

OfferRow Broker::State::OfferTo(const Session& session, const Share& share) const {
  OfferRow offer{VisitorOf(session), {}, false};
  const HandleKind kind = share.arena->kind();
  if (!session.peer.Opens(kind)) {
    offer.why_not = session.peer.CannotOpen("it", kind).message();
  } else {
    offer.waits = !CheckFence(session, share, false).ok();
  }
  return offer;
}

Result<Inspected> Broker::Inspect(SessionId session, std::string_view ns, const ShareKey& key) const {
  const State& state = *state_;
  Inspected inspected;
  {
    const MutexLock lock(state.mutex);
    const Session* const asker = state.FindSession(session);
    if (asker == nullptr) return NoSession();
    const auto found = state.FindShare(*asker, ns, key);
    if (!found.ok()) return found.status();
    const Share& share = **found;
    inspected.row = state.RowOf(share, Clock::now());
    inspected.maker = MakerOf(share);
    if (share.history != nullptr) {
      inspected.readers = share.history->readers();
      inspected.forgotten = share.history->forgotten();
    }
    for (const auto& [id, one] : state.sessions) {
      if (one->peer.uid == share.ns->uid()) inspected.offers.push_back(state.OfferTo(*one, share));
    }
  }
  const std::vector<DeviceFacts> devices = Devices();
  const auto its = std::ranges::find(devices, inspected.row.handle.device, &DeviceFacts::device);
  if (its != devices.end()) inspected.device = *its;
  return inspected;
}

}  // namespace arraybridge

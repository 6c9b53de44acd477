#include "python/bindings/publishing.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Memory that other processes or earlier shares may free.
bool RoomMayCome(const Status& status) {
  return status.code() == Code::kResourceExhausted &&
         (status.reason() == "QUOTA_EXCEEDED" || status.reason() == "DEVICE_FULL" ||
          status.reason() == "SYSTEM_MEMORY" || status.reason() == "WAITED_IN_VAIN");
}

// A share that the broker would refuse is refused before the copy.
Result<Placement> Place(Broker& broker, std::span<const View> views, const Channel::SendOptions& options) {
  const Broker::PublishOptions publish{.name = {}, .structure = options.structure, .metadata = options.metadata};
  return broker.Place(views, {.own = false, .device = {}, .publish = publish});
}

}  // namespace

Result<PutArrays> PublishArrays(Broker& broker, std::span<const View> views, std::string name,
                                const PutOptions& options) {
  Broker::PublishOptions named = options.said;
  named.name = std::move(name);
  const auto born = named.sealed ? Result<Placement>(NotFound("sealed")) : broker.PlacementOf(views);
  if (born.ok()) named.note = options.note_in_place;
  auto share = born.ok() ? broker.Publish(*born, named) : broker.Put(views, named);
  if (!share.ok()) return share.status();
  return PutArrays{*std::move(share), born.ok()};
}

Result<bool> SendArrays(Broker& broker, Channel& channel, std::span<const View> views, Channel::SendOptions options) {
  std::optional<steady_clock::time_point> until;
  if (options.timeout) until = steady_clock::now() + *options.timeout;
  while (true) {
    const auto born = broker.PlacementOf(views);
    const auto placement = born.ok() ? born : Place(broker, views, options);
    const auto now = until ? steady_clock::now() : steady_clock::time_point();
    // A placement waits for memory as long as the Broker's timeout, and then this waits on.
    const bool again = !placement.ok() && RoomMayCome(placement.status()) && (!until || now < *until);
    if (again && !Interrupted()) continue;
    if (!placement.ok()) return placement.status();
    if (until) options.timeout = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*until - now));
    const Status sent = channel.Send(*placement, options);
    // Another thread has published the arrays that were born there: now they are copied like any other.
    if (born.ok() && sent.reason() == "PLACEMENT_PUBLISHED") continue;
    if (!sent.ok()) return sent;
    return born.ok();
  }
}

}  // namespace arraybridge::python

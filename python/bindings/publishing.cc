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

// A note on a copy ("torch place: not in memory of this namespace"), with the reason if it is another one.
std::string NoteOfCopy(const std::string& note, std::string_view why) {
  const std::string start = note.substr(0, note.find(": "));
  if (why == "APART") return start + ": not in one share";
  if (why == "LAYOUT") return start + ": layout: not contiguous, or not aligned";
  if (why == "WRITTEN") return start + ": written since it was received";
  if (why == "NOT_FORWARDED") return start + ": its share cannot be used here";
  return note;
}

// A share that the broker would refuse is refused before the copy.
Result<Placement> Place(Broker& broker, std::span<const View> views, const Channel::SendOptions& options) {
  const Broker::PublishOptions publish{.name = {}, .structure = options.structure, .metadata = options.metadata};
  return broker.Place(views, {.own = false, .device = {}, .publish = publish, .timeout = options.timeout});
}

}  // namespace

Result<PutArrays> PublishArrays(Broker& broker, std::span<const View> views, std::string name,
                                const PutOptions& options) {
  Broker::PublishOptions named = options.said;
  named.name = std::move(name);
  std::string_view why;
  const auto there = named.sealed ? std::nullopt : broker.PlacementOf(views, &why);
  if (there) {
    const bool in_place = !there->forward();
    named.note = in_place ? options.note_in_place : options.note_forward;
    auto share = broker.Publish(*there, named);
    if (share.ok()) return PutArrays{*std::move(share), in_place};
    if (share.status().reason() != "NOT_FORWARDED") return share.status();
    why = "NOT_FORWARDED";
  }
  named.forward = false;
  named.note = NoteOfCopy(options.said.note, why);
  auto share = broker.Put(views, named);
  if (!share.ok()) return share.status();
  return PutArrays{*std::move(share), false};
}

Result<bool> SendArrays(Broker& broker, Channel& channel, std::span<const View> views, Channel::SendOptions& options) {
  std::optional<steady_clock::time_point> until;
  if (options.timeout) until = steady_clock::now() + *options.timeout;
  for (bool copies = false;;) {
    auto placed = copies ? std::nullopt : broker.PlacementOf(views);
    const bool there = placed.has_value();
    if (!there && channel.TrySend(views, options)) return false;
    const auto placement = there ? *std::move(placed) : Place(broker, views, options);
    const auto now = until ? steady_clock::now() : steady_clock::time_point();
    // A placement waits for memory as long as the Broker's timeout, and then this waits on.
    const bool again = !placement.ok() && RoomMayCome(placement.status()) && (!until || now < *until);
    if (until) options.timeout = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*until - now));
    if (again && !Interrupted()) continue;
    if (!placement.ok()) return placement.status();
    const Status sent = channel.Send(*placement, options);
    // Another thread has published the arrays that were born there, or their share is gone: now they are copied like
    // any other.
    copies = there && (sent.reason() == "PLACEMENT_PUBLISHED" || sent.reason() == "NOT_FORWARDED");
    if (copies) continue;
    if (!sent.ok()) return sent;
    return there && !placement->forward();
  }
}

}  // namespace arraybridge::python

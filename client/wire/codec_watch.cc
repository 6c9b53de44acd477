// SPDX-License-Identifier: Apache-2.0
// Reading answers about watches and events.
#include "client/wire/codec.h"

namespace arraybridge::codec {
namespace {

EventKind KindOf(wire::EventKind said) {
  const bool known = said >= wire::EventKind::kUnspecified && said <= wire::EventKind::kQuota;
  return known ? static_cast<EventKind>(said) : EventKind::kUnknown;
}

Event EventOf(const wire::Event& said) {
  return {.time_ns = said.time_ns,
          .kind = KindOf(said.kind),
          .ns = std::string(said.namespace_),
          .name = std::string(said.name),
          .share = said.share,
          .generation = said.generation,
          .session = said.session,
          .process_id = said.process_id,
          .uid = said.uid,
          .bytes = said.bytes,
          .device = DeviceOf(said.device),
          .code = static_cast<Code>(said.code),
          .reason = std::string(said.reason),
          .verb = std::string(said.verb),
          .note = std::string(said.note)};
}

}  // namespace

Result<uint64_t> DecodeWatch(std::string_view message) {
  return Read<wire::WatchResponse>(message, [](const auto& said) -> Result<uint64_t> {
    if (said.watch == 0) return Malformed("watch");
    return said.watch;
  });
}

Result<std::vector<Event>> DecodeEvents(std::string_view message) {
  return Read<wire::WatchResponse>(message, [](const auto& said) -> Result<std::vector<Event>> {
    std::vector<Event> events;
    events.reserve(said.events.size());
    for (const wire::Event& event : said.events) events.push_back(EventOf(event));
    return events;
  });
}

}  // namespace arraybridge::codec

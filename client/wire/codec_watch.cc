// SPDX-License-Identifier: Apache-2.0
// Reading answers about watches and events.
#include "client/wire/codec.h"

namespace arraybridge::codec {
namespace {

EventKind KindOf(wire::EventKind kind) {
  const bool known = kind >= wire::EventKind::kUnspecified && kind <= wire::EventKind::kQuota;
  return known ? static_cast<EventKind>(kind) : EventKind::kUnknown;
}

Event EventOf(const wire::Event& message) {
  return {.time_ns = message.time_ns,
          .kind = KindOf(message.kind),
          .ns = std::string(message.namespace_),
          .name = std::string(message.name),
          .share = message.share,
          .generation = message.generation,
          .session = message.session,
          .process_id = message.process_id,
          .uid = message.uid,
          .bytes = message.bytes,
          .device = DeviceOf(message.device),
          .code = static_cast<Code>(message.code),
          .reason = std::string(message.reason),
          .verb = std::string(message.verb),
          .note = std::string(message.note)};
}

}  // namespace

Result<std::vector<Event>> DecodeEvents(std::string_view message) {
  return Read<wire::WatchResponse>(message, [](const auto& reply) -> Result<std::vector<Event>> {
    std::vector<Event> events;
    events.reserve(reply.events.size());
    for (const wire::Event& event : reply.events) events.push_back(EventOf(event));
    return events;
  });
}

}  // namespace arraybridge::codec

// What is asked and told of events, and the notes for those who trace.
#include "client/codec_wire.h"

namespace arraybridge::codec {
namespace {

enum EventField : uint32_t {
  kTime = 1,
  kKind,
  kNamespace,
  kName,
  kShare,
  kGeneration,
  kSession,
  kProcessId,
  kUid,
  kBytes,
  kDevice,
  kCode,
  kReason,
  kVerb,
  kNote
};

constexpr uint32_t Fixed64(uint32_t tag) { return protozero::tag_and_type(tag, protozero::pbf_wire_type::fixed64); }

EventKind KindOf(uint64_t number) {
  return number <= static_cast<uint64_t>(EventKind::kQuota) ? static_cast<EventKind>(number) : EventKind::kUnknown;
}

Event ParseEvent(Reader reader) {
  Event event;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Fixed64(kTime):
        event.time_ns = reader.get_fixed64();
        break;
      case Varint(kKind):
        event.kind = KindOf(reader.get_uint64());
        break;
      case Bytes(kNamespace):
        event.ns = Text(reader);
        break;
      case Bytes(kName):
        event.name = Text(reader);
        break;
      case Varint(kShare):
        event.share = reader.get_uint64();
        break;
      case Varint(kGeneration):
        event.generation = reader.get_uint64();
        break;
      case Varint(kSession):
        event.session = reader.get_uint64();
        break;
      case Varint(kProcessId):
        event.process_id = reader.get_uint64();
        break;
      case Varint(kUid):
        event.uid = reader.get_uint32();
        break;
      case Varint(kBytes):
        event.bytes = reader.get_uint64();
        break;
      case Bytes(kDevice):
        event.device = ParseDevice(reader.get_message());
        break;
      case Varint(kCode):
        event.code = static_cast<Code>(reader.get_uint32());
        break;
      case Bytes(kReason):
        event.reason = Text(reader);
        break;
      case Bytes(kVerb):
        event.verb = Text(reader);
        break;
      case Bytes(kNote):
        event.note = Text(reader);
        break;
      default:
        reader.skip();
    }
  }
  return event;
}

}  // namespace

std::string EncodeOpenWatch(std::string_view ns, std::string_view name_prefix, std::span<const EventKind> kinds) {
  Out out;
  Writer writer(out);
  std::vector<uint32_t> numbers;
  for (const EventKind kind : kinds) numbers.push_back(static_cast<uint32_t>(kind));
  if (!numbers.empty()) writer.add_packed_uint32(2, numbers.begin(), numbers.end());
  if (!ns.empty()) writer.add_bytes(3, ns.data(), ns.size());
  if (!name_prefix.empty()) writer.add_bytes(4, name_prefix.data(), name_prefix.size());
  return std::move(out).Take();
}

std::string EncodeNextEvents(uint64_t watch, uint64_t timeout_ms) {
  Out out;
  Writer writer(out);
  writer.add_uint64(1, watch);
  if (timeout_ms != 0) writer.add_uint64(5, timeout_ms);
  return std::move(out).Take();
}

std::string EncodeCloseWatch(uint64_t watch) {
  Out out;
  Writer writer(out);
  writer.add_uint64(1, watch);
  writer.add_bool(6, true);
  return std::move(out).Take();
}

Result<uint64_t> DecodeWatch(std::string_view message) {
  return Decode<uint64_t>(message, [](Reader reader, uint64_t& watch) {
    while (reader.next()) {
      if (reader.tag_and_type() == Varint(1)) {
        watch = reader.get_uint64();
      } else {
        reader.skip();
      }
    }
    return watch == 0 ? Malformed("watch") : Ok();
  });
}

Result<std::vector<Event>> DecodeEvents(std::string_view message) {
  return Decode<std::vector<Event>>(message, [](Reader reader, std::vector<Event>& events) {
    while (reader.next()) {
      if (reader.tag_and_type() == Bytes(2)) {
        events.push_back(ParseEvent(reader.get_message()));
      } else {
        reader.skip();
      }
    }
    return Ok();
  });
}

}  // namespace arraybridge::codec

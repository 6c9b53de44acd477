// Answers that speak of arenas: handles, and ranges that come back.
#include "client/codec_wire.h"

namespace arraybridge::codec {

Device ParseDevice(Reader reader) {
  Device device{0, 0, {}};
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        device.type = reader.get_int32();
        break;
      case Varint(2):
        device.id = reader.get_int32();
        break;
      case Bytes(3):
        device.uuid = Text(reader);
        break;
      default:
        reader.skip();
    }
  }
  return device;
}

Status ParseHandle(Reader reader, Handle& handle) {
  uint32_t kind = 0;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(kHandleKind):
        kind = reader.get_uint32();
        break;
      case Varint(kHandleArena):
        handle.arena = reader.get_uint64();
        break;
      case Varint(kHandleGeneration):
        handle.generation = reader.get_uint64();
        break;
      case Varint(kHandleOffset):
        handle.offset = reader.get_uint64();
        break;
      case Varint(kHandleSize):
        handle.size = reader.get_uint64();
        break;
      case Varint(kHandleArenaSize):
        handle.arena_size = reader.get_uint64();
        break;
      case Bytes(kHandleDevice):
        handle.device = ParseDevice(reader.get_message());
        break;
      case Bytes(kHandleOpaque):
        handle.opaque = Text(reader);
        break;
      default:
        reader.skip();
    }
  }
  if (kind < kKindMemfd || kind > static_cast<uint32_t>(HandleKind::kCudaIpc)) return Malformed("kind of handle");
  handle.kind = static_cast<HandleKind>(kind);
  if (handle.offset > handle.arena_size || handle.size > handle.arena_size - handle.offset) return Malformed("range");
  return Ok();
}

Returned ParseReturned(Reader reader) {
  Returned range;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        range.arena = reader.get_uint64();
        break;
      case Varint(2):
        range.offset = reader.get_uint64();
        break;
      case Varint(3):
        range.size = reader.get_uint64();
        break;
      default:
        reader.skip();
    }
  }
  return range;
}

Result<Allocated> DecodeAllocated(std::string_view message) {
  return Decode<Allocated>(message, [](Reader reader, Allocated& allocated) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(1):
          AB_RETURN_IF_ERROR(ParseHandle(reader.get_message(), allocated.handle));
          allocated.has_handle = true;
          break;
        case Bytes(3):
          allocated.returned.push_back(ParseReturned(reader.get_message()));
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Result<Handle> DecodeExported(std::string_view message) {
  return Decode<Handle>(message, [](Reader reader, Handle& handle) {
    bool has_handle = false;
    while (reader.next()) {
      if (reader.tag_and_type() != Bytes(1)) {
        reader.skip();
        continue;
      }
      AB_RETURN_IF_ERROR(ParseHandle(reader.get_message(), handle));
      has_handle = true;
    }
    return has_handle ? Ok() : Malformed("export without a handle");
  });
}

Result<Released> DecodeReleased(std::string_view message) {
  return Decode<Released>(message, [](Reader reader, Released& released) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(2):
          released.returned.push_back(ParseReturned(reader.get_message()));
          break;
        case Varint(3):
          released.awaited.push_back(reader.get_uint64());
          break;
        case Bytes(3):
          for (const uint64_t share : reader.get_packed_uint64()) released.awaited.push_back(share);
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Result<std::vector<Returned>> DecodeReturned(std::string_view message) {
  return Decode<std::vector<Returned>>(message, [](Reader reader, std::vector<Returned>& returned) {
    while (reader.next()) {
      if (reader.tag_and_type() == Bytes(2)) {
        returned.push_back(ParseReturned(reader.get_message()));
      } else {
        reader.skip();
      }
    }
    return Ok();
  });
}

}  // namespace arraybridge::codec

// Fields are matched with their wire type: protozero asserts on a getter that does not fit, and what a peer sends must
// never be able to stop the process. A known field of the wrong type is skipped like an unknown one, as libprotobuf
// does.
#include "client/codec.h"

#include <limits>
#include <new>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <utility>

namespace arraybridge::codec {
namespace {

using Reader = protozero::pbf_reader;
using Writer = protozero::pbf_writer;

constexpr uint32_t Varint(uint32_t tag) { return protozero::tag_and_type(tag, protozero::pbf_wire_type::varint); }
constexpr uint32_t Bytes(uint32_t tag) {
  return protozero::tag_and_type(tag, protozero::pbf_wire_type::length_delimited);
}

constexpr uint32_t kKindMemfd = 1;
constexpr uint32_t kImmutabilityEnforced = 2;

// Numbers of message fields, in the words of the .proto.
enum HandleField : uint32_t {
  kHandleKind = 1,
  kHandleArena,
  kHandleGeneration,
  kHandleOffset,
  kHandleSize,
  kHandleArenaSize,
  kHandleDevice,
  kHandleOpaque
};
enum SpecField : uint32_t {
  kSpecCode = 1,
  kSpecBits,
  kSpecLanes,
  kSpecDtype,
  kSpecShape,
  kSpecStrides,
  kSpecOffset,
  kSpecSize
};

template <class T, class Parse>
Result<T> Decode(std::string_view message, Parse parse) {
  try {
    T value{};
    Status status = parse(Reader(message.data(), message.size()), value);
    if (!status.ok()) return status;
    return Result<T>(std::move(value));
  } catch (const protozero::exception&) {
    return Status(Code::kDataLoss, "an answer of the broker does not parse", "MALFORMED_ANSWER");
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for an answer of ", message.size(), " bytes");
  }
}

Status Malformed(const char* what) {
  return Status(Code::kDataLoss, Concat("an answer of the broker has a senseless ", what), "MALFORMED_ANSWER");
}

std::string Text(Reader& reader) {
  const auto view = reader.get_view();
  return {view.data(), view.size()};
}

// A repeated int64, packed or one by one.
void Append(Reader& reader, bool packed, std::vector<int64_t>& values) {
  if (!packed) return values.push_back(reader.get_int64());
  for (const int64_t value : reader.get_packed_int64()) values.push_back(value);
}

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

Status ParseSpec(Reader reader, ArraySpec& spec) {
  uint32_t code = 0;
  uint32_t bits = 0;
  uint32_t lanes = 0;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(kSpecCode):
        code = reader.get_uint32();
        break;
      case Varint(kSpecBits):
        bits = reader.get_uint32();
        break;
      case Varint(kSpecLanes):
        lanes = reader.get_uint32();
        break;
      case Bytes(kSpecDtype):
        spec.dtype = Text(reader);
        break;
      case Bytes(kSpecShape):
        Append(reader, true, spec.shape);
        break;
      case Varint(kSpecShape):
        Append(reader, false, spec.shape);
        break;
      case Bytes(kSpecStrides):
        Append(reader, true, spec.strides);
        break;
      case Varint(kSpecStrides):
        Append(reader, false, spec.strides);
        break;
      case Varint(kSpecOffset):
        spec.offset = reader.get_uint64();
        break;
      default:
        reader.skip();
    }
  }
  if (code > std::numeric_limits<uint8_t>::max() || bits > std::numeric_limits<uint8_t>::max() || lanes != 1) {
    return Malformed("element type");
  }
  spec.type = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
  return Ok();
}

Status ParseSpecs(Reader reader, std::vector<ArraySpec>& specs) {
  while (reader.next()) {
    if (reader.tag_and_type() != Bytes(1)) {
      reader.skip();
      continue;
    }
    AB_RETURN_IF_ERROR(ParseSpec(reader.get_message(), specs.emplace_back()));
  }
  return Ok();
}

Immutability ImmutabilityOf(uint32_t number) {
  return number == kImmutabilityEnforced ? Immutability::kEnforced : Immutability::kByContract;
}

bool ParseFenceDone(Reader reader) {
  bool done = true;
  while (reader.next()) {
    if (reader.tag_and_type() == Varint(1)) {
      done = reader.get_uint32() == 0;
    } else {
      reader.skip();
    }
  }
  return done;
}

Status ParseShare(Reader reader, LeasedShare& leased) {
  Share& share = leased.share;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        share.id = reader.get_uint64();
        break;
      case Bytes(2):
        share.ns = Text(reader);
        break;
      case Bytes(3):
        share.name = Text(reader);
        break;
      case Varint(4):
        share.generation = reader.get_uint64();
        break;
      case Bytes(5):
        AB_RETURN_IF_ERROR(ParseHandle(reader.get_message(), leased.handle));
        break;
      case Bytes(6):
        AB_RETURN_IF_ERROR(ParseSpecs(reader.get_message(), share.arrays));
        break;
      case Varint(7):
        share.immutability = ImmutabilityOf(reader.get_uint32());
        break;
      case Bytes(8):
        leased.fence_done = ParseFenceDone(reader.get_message());
        break;
      case Bytes(9):
        share.structure = Text(reader);
        break;
      case Bytes(10):
        share.metadata = Text(reader);
        break;
      case Varint(11):
        share.unnamed = reader.get_bool();
        break;
      default:
        reader.skip();
    }
  }
  share.size = leased.handle.size;
  share.device = leased.handle.device;
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

void ParseLimits(Reader reader, Limits& limits) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(9):
        limits.names_per_request_max = reader.get_uint64();
        break;
      case Varint(10):
        limits.request_timeout_max_ms = reader.get_uint64();
        break;
      case Varint(12):
        limits.arena_idle_ms = reader.get_uint64();
        break;
      case Varint(14):
        limits.own_arena_bytes_min = reader.get_uint64();
        break;
      default:
        reader.skip();
    }
  }
}

Status ParseServer(Reader reader, Server& server) {
  ServerInfo& info = server.info;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Bytes(1):
        info.version = Text(reader);
        break;
      case Bytes(2):
        info.broker_id = Text(reader);
        break;
      case Varint(3):
        info.protocol_min = reader.get_uint32();
        break;
      case Varint(4):
        info.protocol_max = reader.get_uint32();
        break;
      case Varint(6):
        info.uptime_ms = reader.get_uint64();
        break;
      case Bytes(7):
        ParseLimits(reader.get_message(), server.limits);
        break;
      default:
        reader.skip();
    }
  }
  return Ok();
}

void AddRefs(Writer& writer, uint32_t tag, std::span<const ShareRef> shares) {
  for (const ShareRef& ref : shares) {
    Writer entry(writer, tag);
    if (ref.id != 0) entry.add_uint64(2, ref.id);
    if (ref.id == 0) entry.add_string(1, ref.name);
    if (ref.generation != 0) entry.add_uint64(3, ref.generation);
  }
}

void AddNumbers(Writer& writer, uint32_t tag, const std::vector<uint64_t>& numbers) {
  if (!numbers.empty()) writer.add_packed_uint64(tag, numbers.begin(), numbers.end());
}

void AddText(Writer& writer, uint32_t tag, std::string_view text) {
  if (!text.empty()) writer.add_bytes(tag, text.data(), text.size());
}

void AddArray(Writer& specs, const PublishedArray& array) {
  Writer writer(specs, 1);
  writer.add_uint32(kSpecCode, array.spec.type.code);
  writer.add_uint32(kSpecBits, array.spec.type.bits);
  writer.add_uint32(kSpecLanes, array.spec.type.lanes);
  AddText(writer, kSpecDtype, array.spec.dtype);
  const auto& shape = array.spec.shape;
  const auto& strides = array.spec.strides;
  if (!shape.empty()) writer.add_packed_int64(kSpecShape, shape.begin(), shape.end());
  if (!strides.empty()) writer.add_packed_int64(kSpecStrides, strides.begin(), strides.end());
  if (array.spec.offset != 0) writer.add_uint64(kSpecOffset, array.spec.offset);
  writer.add_uint64(kSpecSize, array.size);
}

}  // namespace

std::string Encode(const OpenSession& request) {
  std::string out;
  Writer writer(out);
  writer.add_uint32(1, kProtocolVersion);
  writer.add_uint32(2, kProtocolVersion);
  AddText(writer, 3, request.client);
  {
    Writer capabilities(writer, 4);
    const uint32_t kinds[] = {kKindMemfd};
    capabilities.add_packed_uint32(1, std::begin(kinds), std::end(kinds));
  }
  writer.add_uint64(6, request.process_id);
  return out;
}

std::string Encode(const Allocate& request) {
  std::string out;
  Writer writer(out);
  AddText(writer, 1, request.ns);
  {
    Writer device(writer, 2);
    device.add_int32(1, request.device.type);
    AddText(device, 3, request.device.uuid);
  }
  writer.add_uint64(3, request.size);
  writer.add_uint64(4, request.timeout_ms);
  return out;
}

std::string Encode(const Publish& request) {
  std::string out;
  Writer writer(out);
  AddText(writer, 1, request.ns);
  AddText(writer, 2, request.name);
  writer.add_uint64(3, request.arena);
  writer.add_uint64(4, request.arena_generation);
  writer.add_uint64(5, request.offset);
  writer.add_uint64(6, request.size);
  {
    Writer specs(writer, 7);
    for (const PublishedArray& array : request.arrays) AddArray(specs, array);
  }
  if (request.replace) writer.add_bool(8, true);
  if (request.sealed) writer.add_bool(9, true);
  AddText(writer, 11, request.structure);
  AddText(writer, 12, request.metadata);
  return out;
}

std::string Encode(const Release& request) {
  std::string out;
  Writer writer(out);
  AddNumbers(writer, 1, request.leases);
  AddNumbers(writer, 2, request.arenas);
  AddNumbers(writer, 3, request.unmapped);
  return out;
}

std::string EncodeMapped(uint64_t arena) {
  std::string out;
  Writer(out).add_uint64(1, arena);
  return out;
}

std::string EncodeAcquire(std::string_view ns, std::span<const ShareRef> shares, uint64_t timeout_ms) {
  std::string out;
  Writer writer(out);
  AddText(writer, 1, ns);
  AddRefs(writer, 2, shares);
  if (timeout_ms != 0) writer.add_uint64(3, timeout_ms);
  return out;
}

std::string EncodeExport(uint64_t arena, uint64_t generation) {
  std::string out;
  Writer writer(out);
  writer.add_uint64(1, arena);
  writer.add_uint64(2, generation);
  return out;
}

std::string EncodeWithdraw(std::string_view ns, std::span<const ShareRef> shares) {
  std::string out;
  Writer writer(out);
  AddText(writer, 1, ns);
  AddRefs(writer, 2, shares);
  return out;
}

std::string EncodeList(std::string_view ns, std::string_view name_prefix, std::string_view page_token) {
  std::string out;
  Writer writer(out);
  AddText(writer, 2, ns);
  AddText(writer, 3, name_prefix);
  AddText(writer, 6, page_token);
  return out;
}

Result<Server> DecodeServer(std::string_view message) { return Decode<Server>(message, ParseServer); }

Result<Opened> DecodeOpened(std::string_view message) {
  return Decode<Opened>(message, [](Reader reader, Opened& opened) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          opened.session = reader.get_uint64();
          break;
        case Varint(3):
          opened.protocol = reader.get_uint32();
          break;
        case Bytes(4):
          AB_RETURN_IF_ERROR(ParseServer(reader.get_message(), opened.server));
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
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

Result<Published> DecodePublished(std::string_view message) {
  return Decode<Published>(message, [](Reader reader, Published& published) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          published.share = reader.get_uint64();
          break;
        case Bytes(2):
          published.name = Text(reader);
          break;
        case Varint(3):
          published.generation = reader.get_uint64();
          break;
        case Varint(4):
          published.immutability = ImmutabilityOf(reader.get_uint32());
          break;
        case Bytes(5):
          published.returned.push_back(ParseReturned(reader.get_message()));
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Result<AcquiredShares> DecodeAcquired(std::string_view message) {
  return Decode<AcquiredShares>(message, [](Reader reader, AcquiredShares& acquired) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(1): {
          LeasedShare& leased = acquired.shares.emplace_back();
          Reader entry = reader.get_message();
          while (entry.next()) {
            switch (entry.tag_and_type()) {
              case Varint(1):
                leased.lease = entry.get_uint64();
                break;
              case Bytes(2):
                AB_RETURN_IF_ERROR(ParseShare(entry.get_message(), leased));
                break;
              default:
                entry.skip();
            }
          }
          if (leased.handle.arena_size == 0) return Malformed("share without a handle");
          break;
        }
        case Varint(2):
          acquired.descriptor_arena = reader.get_uint64();
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

Result<Listed> DecodeListed(std::string_view message) {
  return Decode<Listed>(message, [](Reader reader, Listed& listed) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(1): {
          ListedShare& entry = listed.shares.emplace_back();
          Reader fields = reader.get_message();
          while (fields.next()) {
            switch (fields.tag_and_type()) {
              case Bytes(1): {
                LeasedShare leased;
                AB_RETURN_IF_ERROR(ParseShare(fields.get_message(), leased));
                entry.share = std::move(leased.share);
                break;
              }
              case Varint(2):
                entry.maker = fields.get_uint64();
                break;
              case Varint(3):
                entry.leases = fields.get_uint64();
                break;
              case Varint(4):
                entry.age_ms = fields.get_uint64();
                break;
              case Varint(5):
                entry.maker_process_id = fields.get_uint64();
                break;
              default:
                fields.skip();
            }
          }
          break;
        }
        case Bytes(6):
          listed.next_page_token = Text(reader);
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Result<Stats> DecodeStats(std::string_view message) {
  return Decode<Stats>(message, [](Reader reader, Stats& stats) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          stats.sessions = reader.get_uint64();
          break;
        case Varint(2):
          stats.leases = reader.get_uint64();
          break;
        case Varint(3):
          stats.shares = reader.get_uint64();
          break;
        case Varint(4):
          stats.withdrawn_shares = reader.get_uint64();
          break;
        case Varint(5):
          stats.arenas = reader.get_uint64();
          break;
        case Varint(6):
          stats.charged_bytes = reader.get_uint64();
          break;
        case Varint(7):
          stats.tickets = reader.get_uint64();
          break;
        case Varint(8):
          stats.waiting = reader.get_uint64();
          break;
        case Varint(9):
          stats.dying_arenas = reader.get_uint64();
          break;
        case Bytes(10): {
          Reader device = reader.get_message();
          while (device.next()) {
            switch (device.tag_and_type()) {
              case Varint(3):
                stats.capacity_bytes += device.get_uint64();
                break;
              case Varint(4):
                stats.allocated_bytes += device.get_uint64();
                break;
              case Varint(5):
                stats.cached_bytes += device.get_uint64();
                break;
              default:
                device.skip();
            }
          }
          break;
        }
        case Varint(11):
          stats.sessions_total = reader.get_uint64();
          break;
        case Varint(12):
          stats.publishes_total = reader.get_uint64();
          break;
        case Varint(13):
          stats.acquires_total = reader.get_uint64();
          break;
        case Varint(14):
          stats.refusals_total = reader.get_uint64();
          break;
        case Varint(15):
          stats.sessions_cut_total = reader.get_uint64();
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Status DecodeError(uint32_t code, std::string_view message) {
  struct Fields {
    std::string text;
    std::string reason;
    Status::Metadata metadata;
  };
  auto fields = Decode<Fields>(message, [](Reader reader, Fields& found) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(1):
          found.text = Text(reader);
          break;
        case Bytes(2):
          found.reason = Text(reader);
          break;
        case Bytes(3): {
          auto& entry = found.metadata.emplace_back();
          Reader pair = reader.get_message();
          while (pair.next()) {
            switch (pair.tag_and_type()) {
              case Bytes(1):
                entry.first = Text(pair);
                break;
              case Bytes(2):
                entry.second = Text(pair);
                break;
              default:
                pair.skip();
            }
          }
          break;
        }
        default:
          reader.skip();
      }
    }
    return Ok();
  });
  const bool known = code != 0 && code <= static_cast<uint32_t>(Code::kUnauthenticated);
  const Code number = known ? static_cast<Code>(code) : Code::kUnknown;
  if (!fields.ok()) return Status(number, "the broker refused, and its reason does not parse");
  Status status(number, std::move(fields->text), std::move(fields->reason));
  for (auto& [key, value] : fields->metadata) status = std::move(status).With(std::move(key), std::move(value));
  return status;
}

}  // namespace arraybridge::codec

// Answers that speak of shares.
#include "client/codec_wire.h"
#include "proto/boundary/share_limits.h"

namespace arraybridge::codec {
namespace {

// A repeated int64, packed or one by one.
void Append(Reader& reader, bool packed, std::vector<int64_t>& values) {
  if (!packed) return values.push_back(reader.get_int64());
  for (const int64_t value : reader.get_packed_int64()) values.push_back(value);
}

// The maker's words, which a broker of another version may have let through.
Status ParseSpec(Reader reader, uint64_t index, ArraySpec& spec) {
  uint64_t code = 0;
  uint64_t bits = 0;
  uint64_t lanes = 0;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(kSpecCode):
        code = reader.get_uint64();
        break;
      case Varint(kSpecBits):
        bits = reader.get_uint64();
        break;
      case Varint(kSpecLanes):
        lanes = reader.get_uint64();
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
  AB_RETURN_IF_ERROR(CheckElement(code, bits, lanes, index));
  spec.type = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
  return Ok();
}

// The first that cannot be read is said; the others are there all the same.
Status ParseSpecs(Reader reader, std::vector<ArraySpec>& specs) try {
  Status unreadable;
  while (reader.next()) {
    if (reader.tag_and_type() != Bytes(1)) {
      reader.skip();
      continue;
    }
    const uint64_t index = specs.size();
    Status parsed = ParseSpec(reader.get_message(), index, specs.emplace_back());
    if (unreadable.ok()) unreadable = std::move(parsed);
  }
  return unreadable;
} catch (const protozero::exception&) {
  return InvalidArgument("what its maker says of its arrays does not parse").Because("ELEMENT_TYPE");
}

Immutability ImmutabilityOf(uint32_t number) {
  return number == kImmutabilityEnforced ? Immutability::kEnforced : Immutability::kByContract;
}

void ParseFence(Reader reader, DescribedShare& described) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        described.fence_kind = reader.get_uint32();
        break;
      case Bytes(2):
        described.fence.event = Text(reader);
        break;
      default:
        reader.skip();
    }
  }
}

// Who only lists is not told the event.
bool FenceMakesSense(const DescribedShare& described) {
  if (described.fence_kind == 0) return described.fence.done();
  return described.fence_kind == kFenceEvent && described.fence.event.size() == kEventBytes;
}

Status ParseShare(Reader reader, DescribedShare& described) {
  Share& share = described.share;
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
        AB_RETURN_IF_ERROR(ParseHandle(reader.get_message(), described.handle));
        break;
      case Bytes(6):
        described.arrays = ParseSpecs(reader.get_message(), share.arrays);
        break;
      case Varint(7):
        share.immutability = ImmutabilityOf(reader.get_uint32());
        break;
      case Bytes(8):
        ParseFence(reader.get_message(), described);
        break;
      case Bytes(9):
        share.structure = Text(reader);
        break;
      case Bytes(10):
        share.metadata = Text(reader);
        break;
      case Varint(11):
        // Not get_bool: that looks at the byte behind a message which ends here.
        share.unnamed = reader.get_uint64() != 0;
        break;
      default:
        reader.skip();
    }
  }
  share.size = described.handle.size;
  share.device = described.handle.device;
  share.kind = described.handle.kind;
  return Ok();
}

Grant ParseGrant(Reader reader) {
  Grant grant;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        grant.lease = reader.get_uint64();
        break;
      case Bytes(2): {
        const auto share = reader.get_view();
        grant.share = {share.data(), share.size()};
        break;
      }
      default:
        reader.skip();
    }
  }
  return grant;
}

Status ParseListed(Reader reader, ListedShare& listed) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Bytes(1): {
        DescribedShare described;
        AB_RETURN_IF_ERROR(ParseShare(reader.get_message(), described));
        listed.share = std::move(described.share);
        break;
      }
      case Varint(2):
        listed.maker = reader.get_uint64();
        break;
      case Varint(3):
        listed.leases = reader.get_uint64();
        break;
      case Varint(4):
        listed.age_ms = reader.get_uint64();
        break;
      case Varint(5):
        listed.maker_process_id = reader.get_uint64();
        break;
      default:
        reader.skip();
    }
  }
  return Ok();
}

}  // namespace

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

Result<Grants> DecodeGrants(std::string_view message) {
  return Decode<Grants>(message, [](Reader reader, Grants& grants) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(1):
          grants.shares.push_back(ParseGrant(reader.get_message()));
          break;
        case Varint(2):
          grants.descriptor_arena = reader.get_uint64();
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Result<DescribedShare> DecodeShare(std::string_view message) {
  return Decode<DescribedShare>(message, [](Reader reader, DescribedShare& described) {
    AB_RETURN_IF_ERROR(ParseShare(reader, described));
    if (!FenceMakesSense(described)) return Malformed("fence");
    return described.handle.arena_size == 0 ? Malformed("share without a handle") : Ok();
  });
}

Result<DescribedShare> DecodeDescription(std::string_view message) {
  return Decode<DescribedShare>(message, ParseShare);
}

Result<Listed> DecodeListed(std::string_view message) {
  return Decode<Listed>(message, [](Reader reader, Listed& listed) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(1):
          AB_RETURN_IF_ERROR(ParseListed(reader.get_message(), listed.shares.emplace_back()));
          break;
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

}  // namespace arraybridge::codec

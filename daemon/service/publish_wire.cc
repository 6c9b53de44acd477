#include "daemon/service/publish_wire.h"

#include <utility>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire_reader.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

using wire::Advance;
using wire::Bytes;
using wire::NoMessage;
using wire::Reader;
using wire::ReaderOf;
using wire::Varint;
using wire::View;

// libprotobuf would merge the second into the first.
bool TakeOnce(Reader& reader, std::string_view* part) {
  if (part->data() != nullptr) return false;
  *part = View(reader);
  return true;
}

bool ReadSpecs(Reader& reader, PublishAsked& asked) {
  if (!TakeOnce(reader, &asked.specs)) return false;
  for (Reader specs = ReaderOf(asked.specs); Advance(specs); specs.skip()) {
    if (specs.tag_and_type() == Bytes(v1::ArraySpecs::kArraysFieldNumber)) ++asked.arrays;
  }
  return true;
}

void ReadFence(Reader fence, PublishAsked& asked) {
  while (Advance(fence)) {
    switch (fence.tag_and_type()) {
      case Varint(v1::Fence::kKindFieldNumber):
        asked.fence_kind = static_cast<int32_t>(fence.get_uint64());
        break;
      case Bytes(v1::Fence::kOpaqueFieldNumber):
        asked.fence_event = View(fence);
        break;
      default:
        fence.skip();
    }
  }
}

bool ReadField(Reader& reader, PublishAsked& asked) {
  using Field = v1::PublishRequest;
  switch (reader.tag_and_type()) {
    case Bytes(Field::kNamespaceFieldNumber):
      asked.ns = View(reader);
      return IsUtf8(asked.ns);
    case Bytes(Field::kNameFieldNumber):
      asked.name = View(reader);
      return IsUtf8(asked.name);
    case Varint(Field::kArenaFieldNumber):
      asked.arena = reader.get_uint64();
      return true;
    case Varint(Field::kArenaGenerationFieldNumber):
      asked.arena_generation = reader.get_uint64();
      return true;
    case Varint(Field::kOffsetFieldNumber):
      asked.offset = reader.get_uint64();
      return true;
    case Varint(Field::kSizeFieldNumber):
      asked.size = reader.get_uint64();
      return true;
    case Bytes(Field::kSpecsFieldNumber):
      return ReadSpecs(reader, asked);
    case Varint(Field::kReplaceFieldNumber):
      asked.replace = reader.get_uint64() != 0;
      return true;
    case Varint(Field::kSealedFieldNumber):
      asked.sealed = reader.get_uint64() != 0;
      return true;
    case Bytes(Field::kFenceFieldNumber):
      return ReadFence(reader.get_message(), asked), true;
    case Bytes(Field::kStructureFieldNumber):
      asked.structure = View(reader);
      return true;
    case Bytes(Field::kMetadataFieldNumber):
      asked.metadata = View(reader);
      return true;
    case Varint(Field::kChannelFieldNumber):
      asked.channel = reader.get_uint64();
      return true;
    case Varint(Field::kTimeoutMsFieldNumber):
      asked.timeout_ms = reader.get_uint64();
      return true;
    case Varint(Field::kLifetimeMsFieldNumber):
      asked.lifetime_ms = reader.get_uint64();
      return true;
    case Bytes(Field::kNoteFieldNumber):
      asked.note = View(reader);
      return IsUtf8(asked.note);
    default:
      reader.skip();
      return true;
  }
}

bool ReadDescriptionField(Reader& reader, PublishAsked& asked) {
  switch (reader.tag_and_type()) {
    case Bytes(v1::Share::kSpecsFieldNumber):
      return ReadSpecs(reader, asked);
    case Bytes(v1::Share::kStructureFieldNumber):
      asked.structure = View(reader);
      return true;
    case Bytes(v1::Share::kMetadataFieldNumber):
      asked.metadata = View(reader);
      return true;
    default:
      reader.skip();
      return true;
  }
}

void Extent(int64_t extent, SpecFacts& facts) {
  ++facts.rank;
  if (__builtin_mul_overflow(facts.elements, static_cast<uint64_t>(extent), &facts.elements)) {
    facts.elements = UINT64_MAX;  // until an extent is 0
  }
  if (extent < 0 && !facts.negative_extent) facts.negative_extent = extent;
}

bool ReadSpecField(Reader& spec, SpecFacts& facts) {
  using Field = v1::ArraySpec;
  switch (spec.tag_and_type()) {
    case Varint(Field::kCodeFieldNumber):
      facts.code = static_cast<uint32_t>(spec.get_uint64());
      return true;
    case Varint(Field::kBitsFieldNumber):
      facts.bits = static_cast<uint32_t>(spec.get_uint64());
      return true;
    case Varint(Field::kLanesFieldNumber):
      facts.lanes = static_cast<uint32_t>(spec.get_uint64());
      return true;
    case Bytes(Field::kDtypeFieldNumber):
      return IsUtf8(View(spec));
    case Bytes(Field::kShapeFieldNumber):
      for (const int64_t extent : spec.get_packed_int64()) Extent(extent, facts);
      return true;
    case Varint(Field::kShapeFieldNumber):
      return Extent(spec.get_int64(), facts), true;
    case Bytes(Field::kStridesFieldNumber):
      for ([[maybe_unused]] const int64_t stride : spec.get_packed_int64()) ++facts.strides;
      return true;
    case Varint(Field::kStridesFieldNumber):
      static_cast<void>(spec.get_int64());
      ++facts.strides;
      return true;
    case Varint(Field::kOffsetFieldNumber):
      facts.offset = spec.get_uint64();
      return true;
    case Varint(Field::kSizeFieldNumber):
      facts.size = spec.get_uint64();
      return true;
    default:
      spec.skip();
      return true;
  }
}

}  // namespace

Result<PublishAsked> ReadPublish(std::string_view bytes) {
  return wire::ReadAsked<PublishAsked>(bytes, "PublishRequest", ReadField);
}

Result<PublishAsked> ReadDescription(std::string_view bytes) {
  return wire::ReadAsked<PublishAsked>(bytes, "Share", ReadDescriptionField);
}

std::optional<Reach> ReachOf(const SpecFacts& facts) {
  using Field = v1::ArraySpec;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  const auto take = [](Reader& spec, std::vector<int64_t>& numbers) {
    for (const int64_t number : spec.get_packed_int64()) numbers.push_back(number);
    return true;
  };
  const bool read = wire::ReadFields(facts.bytes, [&](Reader& spec) {
    switch (spec.tag_and_type()) {
      case Bytes(Field::kShapeFieldNumber):
        return take(spec, shape);
      case Varint(Field::kShapeFieldNumber):
        return shape.push_back(spec.get_int64()), true;
      case Bytes(Field::kStridesFieldNumber):
        return take(spec, strides);
      case Varint(Field::kStridesFieldNumber):
        return strides.push_back(spec.get_int64()), true;
      default:
        return spec.skip(), true;
    }
  });
  if (!read || shape.size() != facts.rank || strides.size() != shape.size()) return std::nullopt;
  Reach reach;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t steps = 0;
    int64_t& end = strides[i] < 0 ? reach.lowest : reach.highest;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &steps) || __builtin_add_overflow(end, steps, &end)) {
      return std::nullopt;
    }
  }
  return reach;
}

Result<SpecFacts> SpecsReader::Next() {
  SpecFacts facts;
  try {
    Reader specs = ReaderOf(left_);
    AB_CHECK(specs.next(v1::ArraySpecs::kArraysFieldNumber, protozero::pbf_wire_type::length_delimited));
    Reader spec = specs.get_message();
    left_.remove_prefix(left_.size() - specs.length());
    const auto whole = spec.data();
    facts.bytes = {whole.data(), whole.size()};
    while (Advance(spec)) {
      if (!ReadSpecField(spec, facts)) return NoMessage("ArraySpec");
    }
  } catch (const protozero::exception&) {
    return NoMessage("ArraySpec");
  }
  return facts;
}

}  // namespace arraybridge

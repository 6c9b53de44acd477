#include "daemon/service/wire_reader.h"

#include <algorithm>

namespace arraybridge::wire {
namespace {

constexpr size_t kBytesOf32Bits = 5;  // as a varint

// Whether a varint with these bytes first is one of 32 bits, or ends with them.
bool FitsInto32Bits(std::string_view bytes) {
  constexpr uint8_t kMore = 0x80;
  constexpr uint8_t kFifthMax = 7;  // a length stays below 2^31
  for (size_t i = 0; i < std::min(bytes.size(), kBytesOf32Bits); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < kMore) return i + 1 < kBytesOf32Bits || byte <= kFifthMax;
  }
  return bytes.size() < kBytesOf32Bits;
}

}  // namespace

// Where libprotobuf takes no tag, or no length, protozero would cut it to 32 bits.
bool Advance(Reader& reader) {
  const size_t before = reader.length();
  if (!reader.next()) return false;
  const auto rest = reader.data();
  const bool has_length = reader.wire_type() == protozero::pbf_wire_type::length_delimited;
  if (before - rest.size() > kBytesOf32Bits || (has_length && !FitsInto32Bits({rest.data(), rest.size()}))) {
    throw protozero::varint_too_long_exception{};
  }
  return true;
}

}  // namespace arraybridge::wire

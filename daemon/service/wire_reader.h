// Messages that are read where their bytes lie, field by field, and never built. What is taken here is taken by
// libprotobuf too, with the same values; groups, and fields 19000 to 19999, are refused.
#pragma once

#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge::wire {

using Reader = protozero::pbf_reader;

// Fields are matched with their wire type: a known field of another one is skipped like an unknown one, as libprotobuf
// does.
constexpr uint32_t Varint(int field) {
  return protozero::tag_and_type(static_cast<uint32_t>(field), protozero::pbf_wire_type::varint);
}
constexpr uint32_t Bytes(int field) {
  return protozero::tag_and_type(static_cast<uint32_t>(field), protozero::pbf_wire_type::length_delimited);
}

inline Reader ReaderOf(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

inline std::string_view View(Reader& reader) {
  const auto view = reader.get_view();
  return {view.data(), view.size()};
}

// To the next field; false: there is none. Throws protozero::exception.
bool Advance(Reader& reader);

// `read_one` takes the field at which the reader is, or skips it; false: it cannot be. False: these bytes are no such
// message.
template <class ReadOne>
bool ReadFields(std::string_view bytes, ReadOne read_one) {
  try {
    for (Reader reader = ReaderOf(bytes); Advance(reader);) {
      if (!read_one(reader)) return false;
    }
  } catch (const protozero::exception&) {
    return false;
  }
  return true;
}

inline Status NoMessage(std::string_view what) { return InvalidArgument("these bytes are no ", what); }

// What a request asks for, as views into its bytes. INVALID_ARGUMENT: they are no `what`.
template <class Asked, class ReadOne>
Result<Asked> ReadAsked(std::string_view bytes, std::string_view what, ReadOne read_one) {
  Asked asked;
  asked.bytes = bytes;
  if (!ReadFields(bytes, [&](Reader& reader) { return read_one(reader, asked); })) return NoMessage(what);
  return asked;
}

}  // namespace arraybridge::wire

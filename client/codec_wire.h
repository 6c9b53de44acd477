// How messages are written and read, for the files of the codec alone.
//
// Fields are matched with their wire type: protozero asserts on a getter that does not fit, and what a peer sends must
// never be able to stop the process. A known field of the wrong type is skipped like an unknown one, as libprotobuf
// does.
#pragma once

#include <new>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>

#include "client/codec.h"

namespace arraybridge::codec {

using Reader = protozero::pbf_reader;
using Writer = protozero::pbf_writer;

constexpr uint32_t Varint(uint32_t tag) { return protozero::tag_and_type(tag, protozero::pbf_wire_type::varint); }
constexpr uint32_t Bytes(uint32_t tag) {
  return protozero::tag_and_type(tag, protozero::pbf_wire_type::length_delimited);
}

inline constexpr uint32_t kKindMemfd = 1;
inline constexpr uint32_t kImmutabilityEnforced = 2;
inline constexpr uint32_t kFenceEvent = 1;

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

inline Status Malformed(const char* what) {
  return Status(Code::kDataLoss, Concat("an answer of the broker has a senseless ", what), "MALFORMED_ANSWER");
}

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

inline std::string Text(Reader& reader) {
  const auto view = reader.get_view();
  return {view.data(), view.size()};
}

Device ParseDevice(Reader reader);
Status ParseHandle(Reader reader, Handle& handle);
Returned ParseReturned(Reader reader);

}  // namespace arraybridge::codec

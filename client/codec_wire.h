// How messages are written and read, for the files of the codec alone.
//
// Fields are matched with their wire type: protozero asserts on a getter that does not fit, and what a peer sends must
// never be able to stop the process. A known field of the wrong type is skipped like an unknown one, as libprotobuf
// does.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <protozero/basic_pbf_writer.hpp>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "client/codec.h"

namespace arraybridge::codec {

// A message that is being written. Most requests fit into its first room; a std::string that grows byte by byte takes
// three times as long.
class Out {
 public:
  Out() : bytes_(kRoom, '\0') {}
  size_t size() const { return size_; }
  char* at(size_t position) { return bytes_.data() + position; }
  void push_back(char byte) {  // so called by protozero itself
    if (size_ == bytes_.size()) Reserve(1);
    bytes_[size_++] = byte;
  }
  void Append(std::string_view bytes) {
    Reserve(bytes.size());
    bytes.copy(at(size_), bytes.size());
    size_ += bytes.size();
  }
  // What lies in the next `count` bytes is anything: whoever asks for them writes them.
  void Skip(size_t count) {
    Reserve(count);
    size_ += count;
  }
  void Erase(size_t from, size_t to) {
    std::memmove(at(from), at(to), size_ - to);
    size_ -= to - from;
  }
  void Cut(size_t size) { size_ = size; }
  void Reserve(size_t more) {
    if (more > bytes_.size() - size_) bytes_.resize(std::max(2 * bytes_.size(), size_ + more));
  }
  std::string Take() && {
    bytes_.resize(size_);
    return std::move(bytes_);
  }

 private:
  static constexpr size_t kRoom = 192;

  std::string bytes_;
  size_t size_ = 0;
};

using Reader = protozero::pbf_reader;
using Writer = protozero::basic_pbf_writer<Out>;

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

template <>
struct protozero::buffer_customization<arraybridge::codec::Out> {
  using Out = arraybridge::codec::Out;
  static size_t size(const Out* out) noexcept { return out->size(); }
  static void append(Out* out, const char* data, size_t count) { out->Append({data, count}); }
  static void append_zeros(Out* out, size_t count) { out->Skip(count); }
  static void resize(Out* out, size_t size) { out->Cut(size); }
  static void reserve_additional(Out* out, size_t more) { out->Reserve(more); }
  static void erase_range(Out* out, size_t from, size_t to) { out->Erase(from, to); }
  static char* at_pos(Out* out, size_t position) { return out->at(position); }
  static void push_back(Out* out, char byte) { out->push_back(byte); }
};

// SPDX-License-Identifier: Apache-2.0
// A Reader iterates over the fields of one encoded message, for the Read functions that generate.py writes. The bytes
// are untrusted: every length is checked against the remaining bytes. Like libprotobuf, a Reader skips unknown fields,
// and known fields of another wire type. libprotobuf accepts every message that a Reader accepts, with the same values.
// A Reader does not parse lazy fields. It refuses groups and repeated occurrences of a lazy field. Messages nest only
// as deep as their declarations.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::wire {

enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t Tag(uint32_t field, Type type) { return field << 3 | static_cast<uint32_t>(type); }

template <class T>
concept Number = std::integral<T> || std::is_enum_v<T>;

// The place of an error: a field of `part`, which is the message itself or is nested in it.
struct Fault {
  std::string_view message;
  std::string_view part;
  uint32_t field = 0;
};

class Reader {
 public:
  // REQUIRES: the bytes outlive the values read from them; `fault` outlives the Reader.
  Reader(std::string_view bytes, Fault* fault) : at_(bytes.data()), end_(at_ + bytes.size()), fault_(fault) {}

  // Advances to the next field. False: there is none, or the message is malformed (End distinguishes them).
  bool Next() {
    if (at_ == end_ || failed_) return false;
    const uint64_t tag = Varint(kBytesOf32Bits);
    if (tag >> 3 == 0 || tag > UINT32_MAX) Fail();
    tag_ = static_cast<uint32_t>(tag);
    return !failed_;
  }
  uint32_t tag() const { return tag_; }

  // REQUIRES for each of these: Next() returned true, and the tag matches.
  template <Number T>
  void Get(T& value) {
    const uint64_t number = Varint(kBytesOf64Bits);
    if constexpr (std::is_same_v<T, bool>) {
      value = number != 0;
    } else {
      value = static_cast<T>(number);  // truncated to the width of T, as libprotobuf does
    }
  }
  template <class Message>
  void Get(Message& message) {
    Reader inner(View(), fault_);
    if (!Read(inner, message)) failed_ = true;
  }
  template <class Message>
  void Get(std::optional<Message>& message) {
    Get(message ? *message : message.emplace());
  }
  template <Number T>
  void GetPacked(std::vector<T>& values) {
    Reader inner(View(), fault_);
    while (inner.at_ != inner.end_ && !inner.failed_) inner.Get(values.emplace_back());
    if (inner.failed_) Fail();
  }
  void GetFixed64(uint64_t& value);
  void GetBytes(std::string_view& bytes) { bytes = View(); }
  void GetText(std::string_view& text);  // the message is malformed unless the text is UTF-8
  void GetOnce(std::string_view& message);
  void Skip();

  // `message`: the name of the message. False: the message is malformed. REQUIRES: Next() returned false.
  bool End(std::string_view message);

 private:
  static constexpr int kBytesOf32Bits = 5;  // length of a varint
  static constexpr int kBytesOf64Bits = 10;

  uint64_t Varint(int bytes_max) {
    if (at_ != end_ && static_cast<int8_t>(*at_) >= 0) return static_cast<uint8_t>(*at_++);
    return LongVarint(bytes_max);
  }
  uint64_t LongVarint(int bytes_max);
  std::string_view View();
  std::string_view Take(uint64_t size);
  void Fail() { failed_ = true; }

  const char* at_;
  const char* end_;
  Fault* fault_;
  uint32_t tag_ = 0;
  bool failed_ = false;
};

// INVALID_ARGUMENT: the bytes are not such a message, or are more than kMessageBytesMax. The error names the malformed
// field and its message. REQUIRES: the bytes outlive the message.
Status Malformed(const Fault& fault);
inline constexpr size_t kMessageBytesMax = INT32_MAX;  // libprotobuf's limit

template <class Message>
Result<Message> Decode(std::string_view bytes) {
  Fault fault;
  Message message;
  if (bytes.size() > kMessageBytesMax) return Malformed(fault);
  Reader in(bytes, &fault);
  if (!Read(in, message)) return Malformed(fault);
  return Result<Message>(std::move(message));
}

}  // namespace arraybridge::wire

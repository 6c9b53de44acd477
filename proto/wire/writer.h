// SPDX-License-Identifier: Apache-2.0
// A Writer encodes a message from its end to its beginning, so that the length of a nested message is known when its
// header is written. The generated Write functions write the last field first: once into a Counter, which computes the
// size, and once into a BackBuffer of that size. As in proto3, a number that is 0, an empty text and an empty list are
// omitted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/wire/reader.h"

namespace arraybridge::wire {

constexpr size_t VarintBytes(uint64_t value) { return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7; }

class Counter {
 public:
  size_t bytes() const { return bytes_; }
  void Varint(uint64_t value) { bytes_ += VarintBytes(value); }
  void Raw(std::string_view bytes) { bytes_ += bytes.size(); }

 private:
  size_t bytes_ = 0;
};

// REQUIRES: the memory before `end` has room for all bytes that are written.
class BackBuffer {
 public:
  explicit BackBuffer(char* end) : at_(end), end_(end) {}
  size_t bytes() const { return static_cast<size_t>(end_ - at_); }
  void Varint(uint64_t value) {
    constexpr uint64_t kMore = 0x80;
    char* to = at_ -= VarintBytes(value);
    for (; value >= kMore; value >>= 7) *to++ = static_cast<char>(value | kMore);
    *to = static_cast<char>(value);
  }
  void Raw(std::string_view bytes) {
    if (bytes.empty()) return;
    at_ -= bytes.size();
    std::memcpy(at_, bytes.data(), bytes.size());
  }

 private:
  char* at_;
  char* end_;
};

template <class Out>
class Writer {
 public:
  explicit Writer(Out out) : out_(out) {}
  size_t bytes() const { return out_.bytes(); }

  template <Number T>
  void Put(uint32_t field, T value) {
    if (value != T{}) PutOne(field, value);
  }
  void Put(uint32_t field, std::string_view bytes) {
    if (!bytes.empty()) PutOne(field, bytes);
  }
  template <class T>
  void Put(uint32_t field, const std::optional<T>& value) {
    if (value) PutOne(field, *value);
  }
  template <class T>
  void Put(uint32_t field, const std::vector<T>& values) {
    for (auto value = values.rbegin(); value != values.rend(); ++value) PutOne(field, *value);
  }
  template <Number T>
  void Put(uint32_t field, const std::vector<T>& values) {
    if (values.empty()) return;
    const size_t before = bytes();
    for (auto value = values.rbegin(); value != values.rend(); ++value) out_.Varint(static_cast<uint64_t>(*value));
    Nest(field, before);
  }
  void PutFixed64(uint32_t field, uint64_t value) {
    if (value == 0) return;
    char bytes[sizeof value];
    for (char& byte : bytes) {
      byte = static_cast<char>(value);
      value >>= 8;
    }
    out_.Raw({bytes, sizeof bytes});
    out_.Varint(Tag(field, Type::kFixed64));
  }
  // Adds bytes that are already encoded.
  void Raw(std::string_view bytes) { out_.Raw(bytes); }
  // Turns everything that was written since bytes() returned `before` into this field.
  void Nest(uint32_t field, size_t before) {
    out_.Varint(bytes() - before);
    out_.Varint(Tag(field, Type::kBytes));
  }

 private:
  template <Number T>
  void PutOne(uint32_t field, const T& value) {
    out_.Varint(static_cast<uint64_t>(value));  // a negative number has ten bytes
    out_.Varint(Tag(field, Type::kVarint));
  }
  void PutOne(uint32_t field, std::string_view bytes) {
    const size_t before = this->bytes();
    out_.Raw(bytes);
    Nest(field, before);
  }
  template <class Message>
  void PutOne(uint32_t field, const Message& message) {
    const size_t before = bytes();
    Write(*this, message);
    Nest(field, before);
  }

  Out out_;
};

// The size of the encoded message in bytes.
template <class Message>
size_t SizeOf(const Message& message) {
  Writer<Counter> out{Counter()};
  Write(out, message);
  return out.bytes();
}

// Appends the bytes that `put` writes. REQUIRES: `put` writes the same bytes into every Writer.
template <class Put>
void AppendBackwards(std::string* to, Put put) {
  Writer<Counter> count{Counter()};
  put(count);
  to->resize(to->size() + count.bytes());
  Writer<BackBuffer> out{BackBuffer(to->data() + to->size())};
  put(out);
}

template <class Message>
std::string Encode(const Message& message) {
  std::string bytes;
  AppendBackwards(&bytes, [&](auto& out) { Write(out, message); });
  return bytes;
}

}  // namespace arraybridge::wire

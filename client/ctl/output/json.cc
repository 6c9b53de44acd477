// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "proto/boundary/result.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Type = FieldDescriptor::CppType;

constexpr int kDepthMax = 16;  // of nested messages; a type that contains itself would have no end

// Printable ASCII without the characters that protobuf's printer escapes, some of them for the sake of HTML.
bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>';
}

}  // namespace

// The state of writing one message: the destination and the depth of indentation.
class JsonLayout::Writing {
 public:
  Writing(bool whitespace, std::string* out) : whitespace_(whitespace), out_(*out) {}
  ~Writing() { Flush(); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

  void Object(const JsonLayout& layout, const Message& message) {
    const Reflection& of = *message.GetReflection();
    Open('{');
    for (const Field& field : layout.fields_) {
      if (field.has_presence && !of.HasField(message, field.descriptor)) continue;
      Key(field);
      if (field.repeated) {
        List(of, message, field);
      } else {
        One(of, message, field);
      }
    }
    Close('}');
  }

 private:
  void List(const Reflection& of, const Message& message, const Field& field) {
    Open('[');
    const int count = of.FieldSize(message, field.descriptor);
    for (int i = 0; i < count; ++i) {
      Next();
      OneOf(of, message, field, i);
    }
    Close(']');
  }

  void One(const Reflection& of, const Message& message, const Field& field) {
    const auto* const what = field.descriptor;
    switch (field.type) {
      case Type::CPPTYPE_INT32:
        return Number(of.GetInt32(message, what));
      case Type::CPPTYPE_UINT32:
        return Number(of.GetUInt32(message, what));
      case Type::CPPTYPE_INT64:
        return Quoted(of.GetInt64(message, what));
      case Type::CPPTYPE_UINT64:
        return Quoted(of.GetUInt64(message, what));
      case Type::CPPTYPE_BOOL:
        return Boolean(of.GetBool(message, what));
      case Type::CPPTYPE_ENUM:
        return Enum(*what, of.GetEnumValue(message, what));
      case Type::CPPTYPE_STRING:
        return Text(field, of.GetStringReference(message, what, &scratch_));
      default:
        return Object(*field.inside, of.GetMessage(message, what));
    }
  }

  void OneOf(const Reflection& of, const Message& message, const Field& field, int i) {
    const auto* const what = field.descriptor;
    switch (field.type) {
      case Type::CPPTYPE_INT32:
        return Number(of.GetRepeatedInt32(message, what, i));
      case Type::CPPTYPE_UINT32:
        return Number(of.GetRepeatedUInt32(message, what, i));
      case Type::CPPTYPE_INT64:
        return Quoted(of.GetRepeatedInt64(message, what, i));
      case Type::CPPTYPE_UINT64:
        return Quoted(of.GetRepeatedUInt64(message, what, i));
      case Type::CPPTYPE_BOOL:
        return Boolean(of.GetRepeatedBool(message, what, i));
      case Type::CPPTYPE_ENUM:
        return Enum(*what, of.GetRepeatedEnumValue(message, what, i));
      case Type::CPPTYPE_STRING:
        return Text(field, of.GetRepeatedStringReference(message, what, i, &scratch_));
      default:
        return Object(*field.inside, of.GetRepeatedMessage(message, what, i));
    }
  }

  void Boolean(bool is) { Put(is ? "true" : "false"); }

  template <class Integer>
  void Number(Integer number) {
    if (Room() < std::numeric_limits<Integer>::digits10 + 2) Flush();
    const auto [end, error] = std::to_chars(at_, piece_.data() + piece_.size(), number);
    AB_CHECK(error == std::errc());
    at_ = end;
  }
  template <class Integer>
  void Quoted(Integer number) {
    Put('"');
    Number(number);
    Put('"');
  }

  void Enum(const FieldDescriptor& field, int number) {
    const auto* const value = field.enum_type()->FindValueByNumber(number);
    if (value == nullptr) return Number(number);  // of a broker newer than this program
    Put('"');
    Put(value->name());
    Put('"');
  }

  void Text(const Field& field, const std::string& text) {
    if (field.bytes) return Bytes(text);
    if (std::all_of(text.begin(), text.end(), IsPlain)) {
      Put('"');
      Put(text);
      return Put('"');
    }
    // How invalid UTF-8 is shown is protobuf's decision. It escapes control characters, but not all that change the
    // direction of writing.
    google::protobuf::Value value;
    value.set_string_value(text);
    std::string json;
    AB_CHECK(google::protobuf::util::MessageToJsonString(value, &json).ok());
    Put(PrintableJson(json));
  }

  // Base64 with padding, RFC 4648.
  void Bytes(std::string_view bytes) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    Put('"');
    for (size_t at = 0; at < bytes.size(); at += 3) {
      const size_t count = std::min<size_t>(3, bytes.size() - at);
      uint32_t group = 0;
      for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0);
      for (size_t i = 0; i < 4; ++i) Put(i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=');
    }
    Put('"');
  }

  void Open(char bracket) {
    Put(bracket);
    empty_ = true;
    ++depth_;
  }
  void Key(const Field& field) {
    const std::string_view key = field.key;
    const bool first = std::exchange(empty_, false);
    if (!whitespace_) return Put(first ? key.substr(1) : key);
    if (!first) Put(',');
    NewLine();
    Put(key.substr(1));
    Put(' ');
  }
  void Next() {
    if (!std::exchange(empty_, false)) Put(',');
    if (whitespace_) NewLine();
  }
  void Close(char bracket) {
    --depth_;
    if (!std::exchange(empty_, false) && whitespace_) NewLine();
    Put(bracket);
  }
  void NewLine() {
    Put('\n');
    for (int i = 0; i < depth_; ++i) Put(' ');
  }

  size_t Room() const { return static_cast<size_t>(piece_.data() + piece_.size() - at_); }
  void Flush() {
    out_.append(piece_.data(), at_);
    at_ = piece_.data();
  }
  void Put(char c) {
    if (Room() == 0) Flush();
    *at_++ = c;
  }
  void Put(std::string_view text) {
    if (text.size() > Room()) Flush();
    if (text.size() > Room()) return static_cast<void>(out_.append(text));
    at_ = std::copy(text.begin(), text.end(), at_);
  }

  bool whitespace_;
  std::string& out_;
  std::string scratch_{};
  int depth_ = 0;
  bool empty_ = true;            // whether the object or list that was opened last is empty so far
  std::array<char, 512> piece_;  // not yet appended to `out_`: an append to a string costs more than most values
  char* at_ = piece_.data();
};

std::optional<JsonLayout> JsonLayout::Of(const Descriptor& type) { return AtDepth(type, 0); }

std::optional<JsonLayout> JsonLayout::AtDepth(const Descriptor& type, int depth) {
  if (depth == kDepthMax || type.file()->package() == "google.protobuf") return std::nullopt;
  JsonLayout layout;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    const Type kind = field->cpp_type();
    if (field->is_map() || kind == Type::CPPTYPE_FLOAT || kind == Type::CPPTYPE_DOUBLE) return std::nullopt;
    Field own{field,
              kind,
              field->is_repeated(),
              field->has_presence(),
              field->type() == FieldDescriptor::TYPE_BYTES,
              ",\"" + field->name() + "\":",
              nullptr};
    if (kind == Type::CPPTYPE_MESSAGE) {
      auto inside = AtDepth(*field->message_type(), depth + 1);
      if (!inside) return std::nullopt;
      own.inside = std::make_unique<JsonLayout>(*std::move(inside));
    }
    layout.fields_.push_back(std::move(own));
  }
  // Protobuf's printer has no default for members of a oneof, `optional` fields among them, and writes them at the end.
  std::stable_partition(layout.fields_.begin(), layout.fields_.end(),
                        [](const Field& field) { return field.descriptor->containing_oneof() == nullptr; });
  return layout;
}

void JsonLayout::Append(const Message& message, bool whitespace, std::string* out) const {
  Writing(whitespace, out).Object(*this, message);
  if (whitespace) out->push_back('\n');
}

}  // namespace arraybridge::ctl

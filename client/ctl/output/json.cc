// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "proto/boundary/result.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kSingle = -1;

// Printable ASCII without the characters that protobuf's printer escapes, some of them for the sake of HTML.
bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>';
}

}  // namespace

void JsonWriter::Object(const Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  Open('{');
  // Protobuf's printer writes members of a oneof, `optional` fields among them, at the end.
  for (const bool of_oneof : {false, true}) {
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if ((field.containing_oneof() != nullptr) == of_oneof) Member(message, field);
    }
  }
  Close('}');
}

void JsonWriter::Member(const Message& message, const FieldDescriptor& field) {
  const Reflection& of = *message.GetReflection();
  if (field.has_presence() && !of.HasField(message, &field)) return;
  Key(field.name());
  if (!field.is_repeated()) return Value(message, field, kSingle);
  Open('[');
  const int count = of.FieldSize(message, &field);
  for (int i = 0; i < count; ++i) {
    Next();
    Value(message, field, i);
  }
  Close(']');
}

// `index`: of the element of a repeated field; kSingle for any other field.
void JsonWriter::Value(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& of = *message.GetReflection();
  const auto get = [&](auto one, auto element) {
    return index == kSingle ? (of.*one)(message, &field) : (of.*element)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Number(get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_UINT32:
      return Number(get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return Quoted(std::to_string(get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return Quoted(std::to_string(get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return Boolean(get(&Reflection::GetBool, &Reflection::GetRepeatedBool));
    case FieldDescriptor::CPPTYPE_ENUM:
      return Enum(field, get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue));
    case FieldDescriptor::CPPTYPE_STRING:
      return String(field, get(&Reflection::GetString, &Reflection::GetRepeatedString));
    default:
      return Object(index == kSingle ? of.GetMessage(message, &field) : of.GetRepeatedMessage(message, &field, index));
  }
}

void JsonWriter::Boolean(bool is) { out_ += is ? "true" : "false"; }

void JsonWriter::String(const FieldDescriptor& field, const std::string& text) {
  return field.type() == FieldDescriptor::TYPE_BYTES ? Base64(text) : Text(text);
}

void JsonWriter::Enum(const FieldDescriptor& field, int number) {
  const auto* const value = field.enum_type()->FindValueByNumber(number);
  if (value == nullptr) return Number(number);  // of a broker newer than this program
  Quoted(value->name());
}

void JsonWriter::Text(const std::string& text) {
  if (std::ranges::all_of(text, IsPlain)) return Quoted(text);
  // How invalid UTF-8 is shown is protobuf's decision. It escapes control characters, but not all that change the
  // direction of writing.
  google::protobuf::Value value;
  value.set_string_value(text);
  std::string json;
  AB_CHECK(google::protobuf::util::MessageToJsonString(value, &json).ok());
  out_ += PrintableJson(json);
}

void JsonWriter::Quoted(std::string_view plain) { (((out_ += '"') += plain) += '"'); }

// With padding, RFC 4648.
void JsonWriter::Base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  out_ += '"';
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i) out_ += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  out_ += '"';
}

void JsonWriter::Open(char bracket) {
  out_ += bracket;
  empty_ = true;
  ++depth_;
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Next();
  Quoted(name);
  out_ += whitespace_ ? ": " : ":";
  return *this;
}

void JsonWriter::Next() {
  if (!std::exchange(empty_, false)) out_ += ',';
  if (whitespace_) NewLine();
}

void JsonWriter::Close(char bracket) {
  --depth_;
  if (!std::exchange(empty_, false) && whitespace_) NewLine();
  out_ += bracket;
}

void JsonWriter::NewLine() { (out_ += '\n').append(depth_, ' '); }

}  // namespace arraybridge::ctl

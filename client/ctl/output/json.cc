#include "client/ctl/output/json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Type = FieldDescriptor::CppType;

constexpr int kDepthMax = 16;  // of nested messages; a type that contains itself would have no end

template <class Number>
void AppendNumber(Number number, std::string* out) {
  char text[std::numeric_limits<Number>::digits10 + 2];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), number);
  AB_CHECK(error == std::errc());
  out->append(text, end);
}

template <class Number>
void AppendQuoted(Number number, std::string* out) {
  out->push_back('"');
  AppendNumber(number, out);
  out->push_back('"');
}

// Printable ASCII without the characters that protobuf's printer escapes, some of them for the sake of HTML.
bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>';
}

void AppendText(const std::string& text, std::string* out) {
  if (std::all_of(text.begin(), text.end(), IsPlain)) {
    out->push_back('"');
    out->append(text);
    out->push_back('"');
    return;
  }
  // Protobuf decides which characters are escaped and how invalid UTF-8 is shown.
  google::protobuf::Value value;
  value.set_string_value(text);
  std::string json;
  AB_CHECK(google::protobuf::util::MessageToJsonString(value, &json).ok());
  out->append(json);
}

// Base64 with padding, RFC 4648.
void AppendBytes(std::string_view bytes, std::string* out) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  out->push_back('"');
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i) out->push_back(i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=');
  }
  out->push_back('"');
}

void AppendEnum(const FieldDescriptor& field, int number, std::string* out) {
  const auto* const value = field.enum_type()->FindValueByNumber(number);
  if (value == nullptr) return AppendNumber(number, out);  // of a broker newer than this program
  out->append(1, '"').append(value->name()).push_back('"');
}

}  // namespace

// The state of writing one message: the destination and the depth of indentation.
class JsonLayout::Writing {
 public:
  Writing(bool whitespace, std::string* out) : whitespace_(whitespace), out_(*out) {}

  void Object(const JsonLayout& layout, const Message& message) {
    const Reflection& of = *message.GetReflection();
    Open('{');
    for (const Field& field : layout.fields_) {
      if (!IsShown(of, message, *field.descriptor)) continue;
      Next();
      out_ += field.key;
      if (whitespace_) out_ += ' ';
      if (field.descriptor->is_repeated()) {
        List(of, message, field);
      } else {
        One(of, message, field);
      }
    }
    Close('}');
  }

 private:
  // A field with presence is shown if it is set; any other field is always shown.
  static bool IsShown(const Reflection& of, const Message& message, const FieldDescriptor& field) {
    return !field.has_presence() || of.HasField(message, &field);
  }

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
    switch (what->cpp_type()) {
      case Type::CPPTYPE_INT32:
        return AppendNumber(of.GetInt32(message, what), &out_);
      case Type::CPPTYPE_UINT32:
        return AppendNumber(of.GetUInt32(message, what), &out_);
      case Type::CPPTYPE_INT64:
        return AppendQuoted(of.GetInt64(message, what), &out_);
      case Type::CPPTYPE_UINT64:
        return AppendQuoted(of.GetUInt64(message, what), &out_);
      case Type::CPPTYPE_BOOL:
        return Boolean(of.GetBool(message, what));
      case Type::CPPTYPE_ENUM:
        return AppendEnum(*what, of.GetEnumValue(message, what), &out_);
      case Type::CPPTYPE_STRING:
        return Text(*what, of.GetStringReference(message, what, &scratch_));
      default:
        return Object(*field.inside, of.GetMessage(message, what));
    }
  }

  void OneOf(const Reflection& of, const Message& message, const Field& field, int i) {
    const auto* const what = field.descriptor;
    switch (what->cpp_type()) {
      case Type::CPPTYPE_INT32:
        return AppendNumber(of.GetRepeatedInt32(message, what, i), &out_);
      case Type::CPPTYPE_UINT32:
        return AppendNumber(of.GetRepeatedUInt32(message, what, i), &out_);
      case Type::CPPTYPE_INT64:
        return AppendQuoted(of.GetRepeatedInt64(message, what, i), &out_);
      case Type::CPPTYPE_UINT64:
        return AppendQuoted(of.GetRepeatedUInt64(message, what, i), &out_);
      case Type::CPPTYPE_BOOL:
        return Boolean(of.GetRepeatedBool(message, what, i));
      case Type::CPPTYPE_ENUM:
        return AppendEnum(*what, of.GetRepeatedEnumValue(message, what, i), &out_);
      case Type::CPPTYPE_STRING:
        return Text(*what, of.GetRepeatedStringReference(message, what, i, &scratch_));
      default:
        return Object(*field.inside, of.GetRepeatedMessage(message, what, i));
    }
  }

  void Boolean(bool is) { out_ += is ? "true" : "false"; }

  void Text(const FieldDescriptor& field, const std::string& text) {
    if (field.type() == FieldDescriptor::TYPE_BYTES) return AppendBytes(text, &out_);
    AppendText(text, &out_);
  }

  void Open(char bracket) {
    out_ += bracket;
    empty_ = true;
    ++depth_;
  }
  void Next() {
    if (!std::exchange(empty_, false)) out_ += ',';
    NewLine();
  }
  void Close(char bracket) {
    --depth_;
    if (!std::exchange(empty_, false)) NewLine();
    out_ += bracket;
  }
  void NewLine() {
    if (whitespace_) out_.append(1, '\n').append(static_cast<size_t>(depth_), ' ');
  }

  bool whitespace_;
  std::string& out_;
  std::string scratch_{};
  int depth_ = 0;
  bool empty_ = true;  // whether the object or list that was opened last is empty so far
};

std::optional<JsonLayout> JsonLayout::Of(const Descriptor& type) { return AtDepth(type, 0); }

std::optional<JsonLayout> JsonLayout::AtDepth(const Descriptor& type, int depth) {
  if (depth == kDepthMax || type.file()->package() == "google.protobuf") return std::nullopt;
  JsonLayout layout;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    const Type kind = field->cpp_type();
    if (field->is_map() || kind == Type::CPPTYPE_FLOAT || kind == Type::CPPTYPE_DOUBLE) return std::nullopt;
    Field own{field, "\"" + field->name() + "\":", nullptr};
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

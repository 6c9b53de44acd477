// SPDX-License-Identifier: Apache-2.0
// JsonWriter beside protobuf's own printer: the same characters for every message of the protocol, except for those
// that a terminal would act on.
#include "client/ctl/output/json.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "arraybridge/v1/admin.pb.h"
#include "arraybridge/v1/broker.pb.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Type = FieldDescriptor::CppType;

std::string Theirs(const Message& message, bool whitespace) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = whitespace;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  return PrintableJson(json);
}

std::string Ours(const Message& message, bool whitespace) {
  std::string json;
  JsonWriter(whitespace, &json).Object(message);
  return whitespace ? json + '\n' : json;
}

// Fills a message with values of which every kind has its edges among them.
class Filler {
 public:
  explicit Filler(uint32_t seed) : random_(seed) {}

  void Fill(Message* message) {
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* const field = message->GetDescriptor()->field(i);
      if (random_() % 4 == 0) continue;  // some are left out
      for (auto count = field->is_repeated() ? random_() % 3 : 1; count > 0; --count) Put(message, field);
    }
  }

 private:
  uint64_t Number() {
    constexpr uint64_t kEdges[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, ~uint64_t{0}};
    return random_() % 2 == 0 ? random_() : kEdges[random_() % std::size(kEdges)];
  }
  std::string Text(bool bytes) {
    static const std::string kTexts[] = {"",
                                         "frame",
                                         "a\"b\\c",
                                         "</script>",
                                         "\x1b[31m\n\t\b\f\r\x7f",
                                         "größe",
                                         "\u202e\u200b\u2028\ufeff\u2066\u2069\u061c",
                                         "\U0001f600 \U000e0041",
                                         std::string("\0x", 2)};
    if (!bytes) return kTexts[random_() % std::size(kTexts)];
    std::string made(random_() % 8, '\0');
    for (char& c : made) c = static_cast<char>(random_());
    return made;
  }
  int Enum(const FieldDescriptor* field) {
    const auto* const type = field->enum_type();
    if (random_() % 8 == 0) return 1000;  // of a newer broker
    return type->value(static_cast<int>(random_() % static_cast<uint64_t>(type->value_count())))->number();
  }

  // Sets the field, or adds an element to a repeated one.
  void Put(Message* to, const FieldDescriptor* field) {
    const auto& of = *to->GetReflection();
    const auto put = [&](auto set, auto add, auto value) {
      return field->is_repeated() ? (of.*add)(to, field, value) : (of.*set)(to, field, value);
    };
    switch (field->cpp_type()) {
      case Type::CPPTYPE_INT32:
        return put(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<int32_t>(Number()));
      case Type::CPPTYPE_UINT32:
        return put(&Reflection::SetUInt32, &Reflection::AddUInt32, static_cast<uint32_t>(Number()));
      case Type::CPPTYPE_INT64:
        return put(&Reflection::SetInt64, &Reflection::AddInt64, static_cast<int64_t>(Number()));
      case Type::CPPTYPE_UINT64:
        return put(&Reflection::SetUInt64, &Reflection::AddUInt64, Number());
      case Type::CPPTYPE_BOOL:
        return put(&Reflection::SetBool, &Reflection::AddBool, Number() % 2 == 1);
      case Type::CPPTYPE_ENUM:
        return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, Enum(field));
      case Type::CPPTYPE_STRING:
        return put(&Reflection::SetString, &Reflection::AddString, Text(field->type() == FieldDescriptor::TYPE_BYTES));
      default:
        return Fill(field->is_repeated() ? of.AddMessage(to, field) : of.MutableMessage(to, field));
    }
  }

  std::mt19937 random_;
};

template <class M>
void Compare() {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    M message;
    if (seed > 0) Filler(seed).Fill(&message);
    ASSERT_EQ(Ours(message, false), Theirs(message, false)) << message.DebugString();
    ASSERT_EQ(Ours(message, true), Theirs(message, true)) << message.DebugString();
  }
}

TEST(JsonWriter, WritesWhatProtobufWrites) {
  Compare<v1::ShareInfo>();
  Compare<v1::SessionInfo>();
  Compare<v1::LeaseInfo>();
  Compare<v1::NamespaceInfo>();
  Compare<v1::DeviceInfo>();
  Compare<v1::ChannelInfo>();
  Compare<v1::ListResponse>();
  Compare<v1::GetStatsResponse>();
  Compare<v1::GetServerInfoResponse>();
  Compare<v1::Event>();
  Compare<v1::SessionEvent>();  // a oneof
  Compare<v1::PublishResponse>();
}

}  // namespace
}  // namespace arraybridge::ctl

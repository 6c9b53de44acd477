// SPDX-License-Identifier: Apache-2.0
// JsonLayout beside protobuf's own printer: the same characters for every message of the protocol, except for those
// that a terminal would act on.
#include "client/ctl/output/json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "arraybridge/v1/admin.pb.h"
#include "arraybridge/v1/broker.pb.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
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
  const auto layout = JsonLayout::Of(*message.GetDescriptor());
  EXPECT_TRUE(layout.has_value()) << message.GetDescriptor()->full_name();
  std::string json;
  if (layout) layout->Append(message, whitespace, &json);
  return json;
}

// Fills a message with values of which every kind has its edges among them.
class Filler {
 public:
  explicit Filler(uint32_t seed) : random_(seed) {}

  void Fill(Message* message) {
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* const field = message->GetDescriptor()->field(i);
      if (random_() % 4 == 0) continue;  // some are left out
      if (!field->is_repeated()) {
        Set(message, field);
        continue;
      }
      for (auto count = random_() % 3; count > 0; --count) Add(message, field);
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

  void Set(Message* to, const FieldDescriptor* field) {
    const auto& of = *to->GetReflection();
    switch (field->cpp_type()) {
      case Type::CPPTYPE_INT32:
        return of.SetInt32(to, field, static_cast<int32_t>(Number()));
      case Type::CPPTYPE_UINT32:
        return of.SetUInt32(to, field, static_cast<uint32_t>(Number()));
      case Type::CPPTYPE_INT64:
        return of.SetInt64(to, field, static_cast<int64_t>(Number()));
      case Type::CPPTYPE_UINT64:
        return of.SetUInt64(to, field, Number());
      case Type::CPPTYPE_BOOL:
        return of.SetBool(to, field, Number() % 2 == 1);
      case Type::CPPTYPE_ENUM:
        return of.SetEnumValue(to, field, Enum(field));
      case Type::CPPTYPE_STRING:
        return of.SetString(to, field, Text(field->type() == FieldDescriptor::TYPE_BYTES));
      default:
        return Fill(of.MutableMessage(to, field));
    }
  }

  void Add(Message* to, const FieldDescriptor* field) {
    const auto& of = *to->GetReflection();
    switch (field->cpp_type()) {
      case Type::CPPTYPE_INT32:
        return of.AddInt32(to, field, static_cast<int32_t>(Number()));
      case Type::CPPTYPE_UINT32:
        return of.AddUInt32(to, field, static_cast<uint32_t>(Number()));
      case Type::CPPTYPE_INT64:
        return of.AddInt64(to, field, static_cast<int64_t>(Number()));
      case Type::CPPTYPE_UINT64:
        return of.AddUInt64(to, field, Number());
      case Type::CPPTYPE_BOOL:
        return of.AddBool(to, field, Number() % 2 == 1);
      case Type::CPPTYPE_ENUM:
        return of.AddEnumValue(to, field, Enum(field));
      case Type::CPPTYPE_STRING:
        return of.AddString(to, field, Text(field->type() == FieldDescriptor::TYPE_BYTES));
      default:
        return Fill(of.AddMessage(to, field));
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

TEST(JsonLayout, WritesWhatProtobufWrites) {
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

// A message is handed on in pieces of 512 characters: each kind of value begins at, ends at, or crosses the end of one.
TEST(JsonLayout, WritesValuesOfEveryLength) {
  v1::ShareInfo message;
  message.set_leases(~uint64_t{0});
  message.mutable_share()->mutable_handle()->mutable_device()->set_id(-2147483647 - 1);
  for (size_t length = 0; length < 1100; ++length) {
    message.mutable_share()->set_name(std::string(length, 'n'));
    message.mutable_share()->set_metadata(std::string(length % 7, '\xff'));
    ASSERT_EQ(Ours(message, false), Theirs(message, false));
    ASSERT_EQ(Ours(message, true), Theirs(message, true));
  }
}

TEST(JsonLayout, LeavesMapsAndProtobufsOwnTypesToProtobuf) {
  EXPECT_FALSE(JsonLayout::Of(*google::protobuf::ListValue::descriptor()));
  EXPECT_FALSE(JsonLayout::Of(*v1::Error::descriptor()));  // a map
}

}  // namespace
}  // namespace arraybridge::ctl

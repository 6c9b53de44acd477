// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/publish_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/share_wire.h"

namespace arraybridge {
namespace {

using ::testing::HasSubstr;

v1::PublishRequest FullPublish() {
  v1::PublishRequest request;
  request.set_namespace_("ns");
  request.set_name("n\xc3\xa4me");
  request.set_arena(UINT64_MAX);
  request.set_arena_generation(2);
  request.set_offset(256);
  request.set_size(4096);
  for (const int bits : {8, 64}) {
    v1::ArraySpec* spec = request.mutable_specs()->add_arrays();
    spec->set_code(1);
    spec->set_bits(static_cast<uint32_t>(bits));
    spec->set_lanes(1);
    spec->set_dtype("\xc2\xb5");
    for (const int64_t extent : {3, 500}) spec->add_shape(extent);
    for (const int64_t stride : {-500, 1}) spec->add_strides(stride);
    spec->set_offset(512);
    spec->set_size(1500);
  }
  request.set_replace(true);
  request.set_sealed(true);
  request.mutable_fence()->set_kind(v1::Fence::EVENT);
  request.mutable_fence()->set_opaque(std::string(64, 'e'));
  request.set_structure(std::string("tr\0ee", 5));
  request.set_metadata("\xff");
  request.set_channel(7);
  request.set_timeout_ms(8);
  request.set_lifetime_ms(9);
  request.set_note("note");
  request.set_seen_notice(10);
  request.mutable_source()->set_lease(11);
  request.mutable_source()->set_share(12);
  request.mutable_source()->set_direct_channel_number(13);
  request.mutable_source()->set_direct_channel_bit(14);
  return request;
}

TEST(PublishWireTest, ReadsEveryField) {
  const v1::PublishRequest request = FullPublish();
  const std::string bytes = request.SerializeAsString();
  const auto asked = ReadPublish(bytes);
  ASSERT_TRUE(asked.ok()) << asked.status().ToString();
  EXPECT_EQ(asked->bytes, bytes);
  EXPECT_EQ(asked->ns, request.namespace_());
  EXPECT_EQ(asked->name, request.name());
  EXPECT_EQ(asked->arena, request.arena());
  EXPECT_EQ(asked->arena_generation, request.arena_generation());
  EXPECT_EQ(asked->offset, request.offset());
  EXPECT_EQ(asked->size, request.size());
  EXPECT_EQ(asked->specs, request.specs().SerializeAsString());
  EXPECT_EQ(asked->arrays, 2u);
  EXPECT_TRUE(asked->replace);
  EXPECT_TRUE(asked->sealed);
  EXPECT_EQ(asked->fence_kind, v1::Fence::EVENT);
  EXPECT_EQ(asked->fence_event, request.fence().opaque());
  EXPECT_EQ(asked->structure, request.structure());
  EXPECT_EQ(asked->metadata, request.metadata());
  EXPECT_EQ(asked->channel, 7u);
  EXPECT_EQ(asked->timeout_ms, 8u);
  EXPECT_EQ(asked->lifetime_ms, 9u);
  EXPECT_EQ(asked->note, "note");
  EXPECT_EQ(asked->seen_notice, 10u);
  EXPECT_EQ(asked->source_lease, 11u);
  EXPECT_EQ(asked->source_share, 12u);
  EXPECT_EQ(asked->source_direct_channel, 13u);
  EXPECT_EQ(asked->source_bit, 14u);
}

TEST(PublishWireTest, EveryFieldOfTheMessageIsRead) {
  // The encoder would drop a field that is new in the .proto.
  EXPECT_EQ(v1::PublishRequest::descriptor()->field_count(), 18);
  EXPECT_EQ(v1::Source::descriptor()->field_count(), 4);
  EXPECT_EQ(v1::Fence::descriptor()->field_count(), 2);
}

TEST(PublishWireTest, WhatItMakesOfThemIsAShareAndIsReadBack) {
  const v1::PublishRequest request = FullPublish();
  const std::string bytes = request.SerializeAsString();
  const std::string description = CallOf(*ReadPublish(bytes)).description;
  v1::Share share;
  ASSERT_TRUE(share.ParseFromString(description));
  EXPECT_EQ(share.specs().SerializeAsString(), request.specs().SerializeAsString());
  EXPECT_EQ(share.structure(), request.structure());
  EXPECT_EQ(share.metadata(), request.metadata());
  const auto asked = ReadDescription(description);
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked->specs, request.specs().SerializeAsString());
  EXPECT_EQ(asked->arrays, 2u);
  EXPECT_EQ(asked->structure, request.structure());
  EXPECT_EQ(asked->metadata, request.metadata());
}

TEST(PublishWireTest, UnknownFieldsAreSkippedAndHandedOn) {
  v1::PublishRequest request = FullPublish();
  const std::string unknown =
      "\xa2\x06\x03"
      "abc";  // field 100, three bytes
  const std::string specs = request.specs().SerializeAsString() + unknown;
  request.clear_specs();
  const std::string bytes = unknown + request.SerializeAsString() + "\x3a" + static_cast<char>(specs.size()) + specs;
  const auto asked = ReadPublish(bytes);
  ASSERT_TRUE(asked.ok()) << asked.status().ToString();
  EXPECT_EQ(asked->specs, specs);
  EXPECT_EQ(asked->arrays, 2u);
}

void ExpectNoPublish(const std::string& bytes, const std::string& what = "PublishRequest") {
  const auto asked = ReadPublish(bytes);
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(asked.status().message(), HasSubstr("these bytes are not a valid " + what));
}

TEST(PublishWireTest, WhatIsNoMessageIsRefused) {
  const std::string whole = FullPublish().SerializeAsString();
  ExpectNoPublish("\xff");
  ExpectNoPublish(whole.substr(0, whole.size() - 1));
  ExpectNoPublish("\x12\x01\xff");                                  // a name that is not UTF-8
  ExpectNoPublish("\x8a\x01\x01\x80");                              // a note that is not UTF-8
  ExpectNoPublish("\x7b\x7c");                                      // groups
  ExpectNoPublish(std::string("\xf8\x80\x80\x80\x80\x00\x01", 7));  // a tag of six bytes
  ExpectNoPublish("\x3a\x02\x0a\x05", "ArraySpecs");                // specs that end within a spec
  const std::string specs = "\x3a\x04\x0a\x02\x10\x08";
  EXPECT_TRUE(ReadPublish(specs).ok());
  ExpectNoPublish(specs + specs);  // ambiguous
}

// libprotobuf, which other readers use for the specs, accepts no length above 32 bits.
TEST(PublishWireTest, LengthsThatProtobufDoesNotTakeAreRefusedAtEveryLevel) {
  const std::string six("\x83\x80\x80\x80\x80\x00", 6);  // 3 in six bytes
  const std::string wide = "\x83\x80\x80\x80\x10";       // 3, and a bit beyond 32
  for (const std::string& length : {six, wide}) {
    const std::string unknown = "\x7a" + length + "abc";
    ExpectNoPublish("\xa2\x06" + length + "abc");
    ExpectNoPublish("\x52" + std::string(1, static_cast<char>(unknown.size())) + unknown);  // in the fence
    ExpectNoPublish("\x3a" + std::string(1, static_cast<char>(unknown.size())) + unknown,
                    "ArraySpecs");  // beside the specs
    const std::string spec = "\x10\x08\x18\x01" + unknown;
    const std::string specs = std::string("\x0a") + static_cast<char>(spec.size()) + spec;
    const std::string bytes = std::string("\x3a") + static_cast<char>(specs.size()) + specs;
    ASSERT_FALSE(v1::PublishRequest().ParseFromString(bytes));
    const auto asked = ReadPublish(bytes);
    ASSERT_TRUE(asked.ok());
    EXPECT_EQ(CheckPublish(Limits{}, *asked).code(), Code::kInvalidArgument);
  }
}

TEST(PublishWireTest, ASpecThatIsNoneIsRefusedWhenItIsRead) {
  // Malformed fields of the single array: a dtype that is not UTF-8, then one that is; a shape that ends within a
  // number; a group.
  for (const std::string spec : {"\x22\x01\xff\x22\x01x", "\x2a\x01\x80", "\x7b\x7c"}) {
    const std::string specs = std::string("\x0a") + static_cast<char>(spec.size()) + spec;
    const std::string bytes = std::string("\x3a") + static_cast<char>(specs.size()) + specs;
    const auto asked = ReadPublish(bytes);
    ASSERT_TRUE(asked.ok());
    const Status refused = CheckPublish(Limits{}, *asked);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("ArraySpec"));
  }
}

}  // namespace
}  // namespace arraybridge

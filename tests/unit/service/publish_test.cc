// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/share_wire.h"
#include "tests/unit/service/asked.h"

namespace arraybridge::daemon {
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

TEST(PublishTest, EveryFieldHasAPlaceInTheCall) {
  const v1::PublishRequest request = FullPublish();
  const Asked asked(request);
  const PublishCall call = CallOf(asked);
  EXPECT_EQ(call.ns, request.namespace_());
  EXPECT_EQ(call.name, request.name());
  EXPECT_EQ(call.arena, ArenaId{request.arena()});
  EXPECT_EQ(call.arena_generation, request.arena_generation());
  EXPECT_EQ(call.offset, request.offset());
  EXPECT_EQ(call.size, request.size());
  EXPECT_TRUE(call.replace && call.sealed);
  EXPECT_EQ(call.fence.event, request.fence().opaque());
  EXPECT_EQ(call.channel, ChannelEndId{7});
  EXPECT_EQ(call.lifetime, std::chrono::milliseconds(9));
  EXPECT_EQ(call.note, "note");
  EXPECT_EQ(call.seen_notice, 10u);
  ASSERT_TRUE(call.source);
  EXPECT_EQ(call.source->lease, LeaseId{11});
  EXPECT_EQ(call.source->share, ShareId{12});
  EXPECT_EQ(call.source->direct_channel, 13u);
  EXPECT_EQ(call.source->bit, 14u);
  // A field that is new in the .proto needs a place in the call, but for timeout_ms, which the verb reads.
  EXPECT_EQ(v1::PublishRequest::descriptor()->field_count(), 18);
  EXPECT_EQ(v1::Source::descriptor()->field_count(), 4);
  EXPECT_EQ(v1::Fence::descriptor()->field_count(), 2);
}

TEST(PublishTest, WhatItMakesOfThemIsAShareAndIsReadBack) {
  const v1::PublishRequest request = FullPublish();
  const std::string description = CallOf(Asked(request)).description;
  v1::Share share;
  ASSERT_TRUE(share.ParseFromString(description));
  EXPECT_EQ(share.specs().SerializeAsString(), request.specs().SerializeAsString());
  EXPECT_EQ(share.structure(), request.structure());
  EXPECT_EQ(share.metadata(), request.metadata());
}

TEST(PublishTest, UnknownFieldsAreSkippedAndHandedOn) {
  v1::PublishRequest request = FullPublish();
  const std::string unknown =
      "\xa2\x06\x03"
      "abc";  // field 100, three bytes
  const std::string specs = request.specs().SerializeAsString() + unknown;
  request.clear_specs();
  const std::string bytes = unknown + request.SerializeAsString() + "\x3a" + static_cast<char>(specs.size()) + specs;
  const auto asked = wire::Decode<wire::PublishRequest>(bytes);
  ASSERT_TRUE(asked.ok()) << asked.status().ToString();
  EXPECT_EQ(asked->specs, specs);
}

void ExpectNoPublish(const std::string& bytes) {
  const auto asked = wire::Decode<wire::PublishRequest>(bytes);
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(asked.status().message(), HasSubstr("these bytes are not a valid PublishRequest"));
}

TEST(PublishTest, WhatIsNoMessageIsRefused) {
  const std::string whole = FullPublish().SerializeAsString();
  ExpectNoPublish("\xff");
  ExpectNoPublish(whole.substr(0, whole.size() - 1));
  ExpectNoPublish("\x12\x01\xff");                                  // a name that is not UTF-8
  ExpectNoPublish("\x8a\x01\x01\x80");                              // a note that is not UTF-8
  ExpectNoPublish("\x7b\x7c");                                      // groups
  ExpectNoPublish(std::string("\xf8\x80\x80\x80\x80\x00\x01", 7));  // a tag of six bytes
  const std::string specs = "\x3a\x04\x0a\x02\x10\x08";
  EXPECT_TRUE(wire::Decode<wire::PublishRequest>(specs).ok());
  ExpectNoPublish(specs + specs);  // ambiguous
}

// libprotobuf, which other readers use for the specs, accepts no length above 32 bits.
TEST(PublishTest, LengthsThatProtobufDoesNotTakeAreRefusedAtEveryLevel) {
  const std::string six("\x83\x80\x80\x80\x80\x00", 6);  // 3 in six bytes
  const std::string wide = "\x83\x80\x80\x80\x10";       // 3, and a bit beyond 32
  for (const std::string& length : {six, wide}) {
    const std::string unknown = "\x7a" + length + "abc";
    ExpectNoPublish("\xa2\x06" + length + "abc");
    ExpectNoPublish("\x52" + std::string(1, static_cast<char>(unknown.size())) + unknown);  // in the fence
    const std::string spec = "\x10\x08\x18\x01" + unknown;
    const std::string specs = std::string("\x0a") + static_cast<char>(spec.size()) + spec;
    const std::string bytes = std::string("\x3a") + static_cast<char>(specs.size()) + specs;
    ASSERT_FALSE(v1::PublishRequest().ParseFromString(bytes));
    const auto asked = wire::Decode<wire::PublishRequest>(bytes);
    ASSERT_TRUE(asked.ok());
    EXPECT_EQ(CheckPublish(Limits{}, *asked).code(), Code::kInvalidArgument);
  }
}

TEST(PublishTest, ASpecThatIsNoneIsRefusedWhenItIsRead) {
  // Malformed fields of the single array: a dtype that is not UTF-8, then one that is; a shape that ends within a
  // number; a group.
  for (const std::string spec : {"\x22\x01\xff\x22\x01x", "\x2a\x01\x80", "\x7b\x7c"}) {
    const std::string specs = std::string("\x0a") + static_cast<char>(spec.size()) + spec;
    const std::string bytes = std::string("\x3a") + static_cast<char>(specs.size()) + specs;
    const auto asked = wire::Decode<wire::PublishRequest>(bytes);
    ASSERT_TRUE(asked.ok());
    const Status refused = CheckPublish(Limits{}, *asked);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("ArraySpec"));
  }
}

}  // namespace
}  // namespace arraybridge::daemon

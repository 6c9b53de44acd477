// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/acquire_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "arraybridge/v1/broker.pb.h"

namespace arraybridge {
namespace {

using ::testing::HasSubstr;

v1::AcquireRequest FullAcquire() {
  v1::AcquireRequest request;
  request.set_namespace_("ns");
  request.add_shares()->set_name("n\xc3\xa4me");
  request.add_shares()->set_id(UINT64_MAX);
  request.mutable_shares(1)->set_generation(3);
  request.mutable_shares(1)->set_newer_than(4);
  request.set_timeout_ms(8);
  request.set_final_only(true);
  request.set_note("note");
  request.set_fence_timeout_ms(9);
  return request;
}

TEST(AcquireWireTest, ReadsEveryField) {
  const std::string bytes = FullAcquire().SerializeAsString();
  const auto asked = ReadAcquire(bytes);
  ASSERT_TRUE(asked.ok()) << asked.status().ToString();
  EXPECT_EQ(asked->bytes, bytes);
  EXPECT_EQ(asked->ns, "ns");
  ASSERT_EQ(asked->shares.size(), 2u);
  EXPECT_EQ(asked->shares[0].name, "n\xc3\xa4me");
  EXPECT_EQ(asked->shares[0].id, ShareId{});
  EXPECT_EQ(asked->shares[0].generation, 0u);
  EXPECT_EQ(asked->shares[1].name, "");
  EXPECT_EQ(asked->shares[1].id, ShareId{UINT64_MAX});
  EXPECT_EQ(asked->shares[1].generation, 3u);
  EXPECT_EQ(asked->shares[1].newer_than, 4u);
  EXPECT_EQ(asked->timeout_ms, 8u);
  EXPECT_TRUE(asked->final_only);
  EXPECT_EQ(asked->note, "note");
  EXPECT_EQ(asked->fence_timeout_ms, 9u);
}

TEST(AcquireWireTest, EveryFieldOfTheMessageIsRead) {
  // The encoder would drop a field that is new in the .proto.
  EXPECT_EQ(v1::AcquireRequest::descriptor()->field_count(), 6);
  EXPECT_EQ(v1::ShareRef::descriptor()->field_count(), 4);
}

TEST(AcquireWireTest, OfNameAndIdTheLastHolds) {
  const std::string name_last("\x12\x05\x10\x07\x0a\x01x");
  EXPECT_EQ(ReadAcquire(name_last)->shares[0].name, "x");
  EXPECT_EQ(ReadAcquire(name_last)->shares[0].id, ShareId{});
  const std::string id_last("\x12\x05\x0a\x01x\x10\x07");
  EXPECT_EQ(ReadAcquire(id_last)->shares[0].name, "");
  EXPECT_EQ(ReadAcquire(id_last)->shares[0].id, ShareId{7});
}

TEST(AcquireWireTest, UnknownFieldsAreSkipped) {
  const std::string unknown("\xa2\x06\x03\x61\x62\x63");  // field 100, three bytes
  const std::string ref = "\x0a\x01x" + unknown;
  const std::string bytes = unknown + "\x12" + static_cast<char>(ref.size()) + ref + "\x18\x05";
  const auto asked = ReadAcquire(bytes);
  ASSERT_TRUE(asked.ok()) << asked.status().ToString();
  EXPECT_EQ(asked->shares.at(0).name, "x");
  EXPECT_EQ(asked->timeout_ms, 5u);
}

TEST(AcquireWireTest, NothingAsksForNothing) {
  const auto asked = ReadAcquire("");
  ASSERT_TRUE(asked.ok());
  EXPECT_TRUE(asked->shares.empty());
}

void ExpectNoAcquire(const std::string& bytes) {
  const auto asked = ReadAcquire(bytes);
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(asked.status().message(), HasSubstr("AcquireRequest"));
}

TEST(AcquireWireTest, WhatIsNoMessageIsRefused) {
  ExpectNoAcquire(std::string("\x0a\x05ns"));                            // a length beyond the end
  ExpectNoAcquire(std::string("\x0a\x02\xff\xfe"));                      // a namespace that is not UTF-8
  ExpectNoAcquire(std::string("\x12\x03\x0a\x01\xff"));                  // a name that is not UTF-8
  ExpectNoAcquire(std::string("\x2a\x01\xff"));                          // a note that is not UTF-8
  ExpectNoAcquire(std::string("\x12\x02\x0a\x05"));                      // a name longer than its share
  ExpectNoAcquire(std::string("\x18"));                                  // no number
  ExpectNoAcquire(std::string("\x18") + std::string(10, '\xff'));        // a number without an end
  ExpectNoAcquire(std::string("\xa2\x06\x83\x80\x80\x80\x10") + "abc");  // a length of more than 32 bits
}

}  // namespace
}  // namespace arraybridge

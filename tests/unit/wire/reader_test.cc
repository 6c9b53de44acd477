// SPDX-License-Identifier: Apache-2.0
// The messages that a Reader refuses, and its errors.
#include "proto/wire/reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "proto/wire/messages.h"

namespace arraybridge {
namespace {

template <class Message>
std::string Refusal(std::string_view bytes) {
  const auto read = wire::Decode<Message>(bytes);
  EXPECT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
  return read.status().message();
}

TEST(WireReaderTest, ErrorsNameTheMalformedFieldAndItsMessage) {
  EXPECT_EQ(Refusal<wire::Range>("\x08"), "these bytes are not a valid Range: field 1 of Range is malformed");
  EXPECT_EQ(Refusal<wire::AcquireRequest>("\x12\x03\x0a\x01\xff"),
            "these bytes are not a valid AcquireRequest: field 1 of ShareRef is malformed");
}

TEST(WireReaderTest, RefusesMessagesThatLibprotobufRefuses) {
  const std::string six("\x83\x80\x80\x80\x80\x00", 6);                             // 3 in six bytes
  const std::string wide = "\x83\x80\x80\x80\x10";                                  // 3, and a bit beyond 32
  for (const std::string& bytes : {std::string("\x00\x01", 2),                      // field 0
                                   "\x0a" + six + "abc", "\x0a" + wide + "abc",     // the length of a text
                                   "\x7a" + six + "abc", "\x7a" + wide + "abc",     // the length of an unknown field
                                   std::string("\xf8\x80\x80\x80\x80\x00\x01", 7),  // a tag of six bytes
                                   std::string("\x18") + std::string(10, '\xff'),   // an unterminated number
                                   std::string("\x79\x01\x02"), std::string("\x7d\x01"), std::string("\x0a\x01\xff")}) {
    EXPECT_FALSE(v1::AcquireRequest().ParseFromString(bytes));
    Refusal<wire::AcquireRequest>(bytes);
  }
}

TEST(WireReaderTest, RefusesGroupsAndARepeatedLazyField) {
  Refusal<wire::Range>("\x7b\x7c");
  const std::string share = "\x12\x02\x08\x01";
  EXPECT_TRUE(wire::Decode<wire::LeasedShare>(share).ok());
  EXPECT_EQ(Refusal<wire::LeasedShare>(share + share),
            "these bytes are not a valid LeasedShare: field 2 of LeasedShare is malformed");
}

TEST(WireReaderTest, SkipsUnknownFieldsAndKnownOnesOfAnotherType) {
  const std::string bytes =
      "\x79" + std::string(8, 'x') + "\x7d" + std::string(4, 'x') + "\x7a\x01x\x78\x05\x0a\x01x\x10\x07";
  const auto range = wire::Decode<wire::Range>(bytes);
  ASSERT_TRUE(range.ok()) << range.status().ToString();
  EXPECT_EQ(range->arena, 0u);
  EXPECT_EQ(range->offset, 7u);
}

TEST(WireReaderTest, UnpackedNumbersAreRead) {
  // Fields 5 and 6, each a separate varint as in protobuf 2; the second extent is -1.
  const std::string bytes = "\x28\x02\x28" + std::string(9, '\xff') + "\x01\x30\x01";
  const auto spec = wire::Decode<wire::ArraySpec>(bytes);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->shape, (std::vector<int64_t>{2, -1}));
  EXPECT_EQ(spec->strides, std::vector<int64_t>{1});
}

TEST(WireReaderTest, TheLastMemberOfAOneofCounts) {
  const auto id_last = wire::Decode<wire::ShareRef>("\x0a\x01x\x10\x07");
  EXPECT_EQ(id_last->id, 7u);
  EXPECT_EQ(id_last->name, std::nullopt);
  const auto name_last = wire::Decode<wire::ShareRef>("\x10\x07\x0a\x01x");
  EXPECT_EQ(name_last->id, std::nullopt);
  EXPECT_EQ(name_last->name, "x");
}

TEST(WireReaderTest, AMessageAboveLibprotobufsLimitIsRefused) {
  const std::string_view large("", wire::kMessageBytesMax + 1);  // it is refused before a byte is read
  EXPECT_EQ(Refusal<wire::Range>(large), "a message has more than 2147483647 bytes");
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Compares the generated readers and writers with libprotobuf, for every message of array.proto and broker.proto.
#include "proto/wire/messages.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <type_traits>

#include "arraybridge/v1/broker.pb.h"

namespace arraybridge {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

// Fills messages with numbers of every width, texts, and lists of up to three.
class Filler {
 public:
  void Fill(Message& message) {
    const Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      for (uint64_t count = Below(field.is_repeated() ? 4 : 2); count > 0; --count) FillOne(message, field);
    }
  }
  uint64_t Below(uint64_t end) { return random_() % end; }

 private:
  uint64_t Number() { return random_() >> Below(64); }

  void FillOne(Message& message, const FieldDescriptor& field) {
    const auto& reflection = *message.GetReflection();
    const auto put = [&](auto set, auto add, auto value) {
      field.is_repeated() ? (reflection.*add)(&message, &field, value) : (reflection.*set)(&message, &field, value);
    };
    using Reflection = google::protobuf::Reflection;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return put(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<int32_t>(Number()));
      case FieldDescriptor::CPPTYPE_INT64:
        return put(&Reflection::SetInt64, &Reflection::AddInt64, static_cast<int64_t>(Number()));
      case FieldDescriptor::CPPTYPE_UINT32:
        return put(&Reflection::SetUInt32, &Reflection::AddUInt32, static_cast<uint32_t>(Number()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return put(&Reflection::SetUInt64, &Reflection::AddUInt64, Number());
      case FieldDescriptor::CPPTYPE_BOOL:
        return put(&Reflection::SetBool, &Reflection::AddBool, Below(2) == 1);
      case FieldDescriptor::CPPTYPE_ENUM:
        return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, static_cast<int>(Number()));
      case FieldDescriptor::CPPTYPE_STRING:
        return put(&Reflection::SetString, &Reflection::AddString,
                   std::string(Below(300), static_cast<char>(Below(128))));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                        : *reflection.MutableMessage(&message, &field));
      default:
        FAIL() << field.full_name() << " has a type that this test does not fill";
    }
  }

  std::mt19937_64 random_;
};

// A Reader keeps the bytes of lazy fields unparsed; libprotobuf parses them.
bool HoldsLazyFields(const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.options().lazy()) return true;
    if (field.message_type() != nullptr && HoldsLazyFields(*field.message_type())) return true;
  }
  return false;
}

template <class OfLibprotobuf, class Generated>
struct Both {
  using Theirs = OfLibprotobuf;
  using Ours = Generated;
};

template <class Messages>
class WireTest : public ::testing::Test {
 protected:
  using Theirs = typename Messages::Theirs;
  using Ours = typename Messages::Ours;

  Filler filler_;
};

#define BOTH(name) Both<v1::name, wire::name>
using AllMessages = ::testing::Types<
    BOTH(Device), BOTH(Handle), BOTH(ArraySpec), BOTH(ArraySpecs), BOTH(Fence), BOTH(Share), BOTH(GetServerInfoRequest),
    BOTH(Limits), BOTH(RefusedKind), BOTH(DeviceInfo), BOTH(Life), BOTH(GetServerInfoResponse),
    BOTH(ClientCapabilities), BOTH(OpenSessionRequest), BOTH(OpenSessionResponse), BOTH(SessionEvent), BOTH(Ticket),
    BOTH(RedeemRequest), BOTH(BrowseRequest), BOTH(BrowseResponse), BOTH(RedeemResponse), BOTH(AllocateRequest),
    BOTH(Range), BOTH(AllocateResponse), BOTH(MappedRequest), BOTH(MappedResponse), BOTH(PublishRequest),
    BOTH(PublishResponse), BOTH(ShareRef), BOTH(AcquireRequest), BOTH(LeasedShare), BOTH(Sent), BOTH(Source),
    BOTH(AcquireResponse), BOTH(OpenChannelRequest), BOTH(OpenChannelResponse), BOTH(CloseChannelRequest),
    BOTH(CloseChannelResponse), BOTH(ReceiveRequest), BOTH(ExportRequest), BOTH(ExportResponse), BOTH(ReleaseRequest),
    BOTH(ShareNote), BOTH(ReleaseResponse), BOTH(WithdrawRequest), BOTH(WithdrawResponse), BOTH(ListRequest),
    BOTH(ShareInfo), BOTH(SessionInfo), BOTH(LeaseInfo), BOTH(NamespaceInfo), BOTH(ChannelInfo), BOTH(ChannelEndInfo),
    BOTH(ListResponse), BOTH(GetStatsRequest), BOTH(GetStatsResponse), BOTH(Event), BOTH(WatchRequest),
    BOTH(WatchResponse), BOTH(InspectRequest), BOTH(Visit), BOTH(Offer), BOTH(InspectResponse), BOTH(ClaimRequest),
    BOTH(ClaimResponse), BOTH(TierRequest), BOTH(TieredShare), BOTH(TierResponse), BOTH(Error)>;
template <class... Each>
constexpr int Count(::testing::Types<Each...>*) {
  return sizeof...(Each);
}
constexpr int kMessages = Count(static_cast<AllMessages*>(nullptr));

TYPED_TEST_SUITE(WireTest, AllMessages);

TYPED_TEST(WireTest, WhatLibprotobufWritesIsReadAndWrittenAlike) {
  // libprotobuf also writes the empty texts of a map.
  const bool has_map = std::is_same_v<typename TestFixture::Ours, wire::Error>;
  for (int turn = 0; turn < 200; ++turn) {
    typename TestFixture::Theirs message;
    this->filler_.Fill(message);
    const std::string bytes = message.SerializeAsString();
    const auto read = wire::Decode<typename TestFixture::Ours>(bytes);
    ASSERT_TRUE(read.ok()) << read.status().ToString() << message.DebugString();
    if (!has_map) {
      EXPECT_EQ(wire::SizeOf(*read), bytes.size());
    }
    typename TestFixture::Theirs again;
    ASSERT_TRUE(again.ParseFromString(wire::Encode(*read)));
    EXPECT_TRUE(MessageDifferencer::Equals(message, again)) << message.DebugString() << again.DebugString();
  }
}

TYPED_TEST(WireTest, OfChangedBytesNoMoreIsAcceptedAndThatIsReadAlike) {
  const bool lazy = HoldsLazyFields(*TestFixture::Theirs::descriptor());
  for (int turn = 0; turn < 2000; ++turn) {
    typename TestFixture::Theirs message;
    this->filler_.Fill(message);
    std::string bytes = message.SerializeAsString();
    if (bytes.empty()) continue;
    bytes[this->filler_.Below(bytes.size())] = static_cast<char>(this->filler_.Below(256));
    if (turn % 2 == 0) bytes.resize(this->filler_.Below(bytes.size() + 1));
    const auto read = wire::Decode<typename TestFixture::Ours>(bytes);
    if (!read.ok() || lazy) continue;
    ASSERT_TRUE(message.ParseFromString(bytes)) << "libprotobuf does not read it";
    message.DiscardUnknownFields();
    typename TestFixture::Theirs again;
    ASSERT_TRUE(again.ParseFromString(wire::Encode(*read)));
    EXPECT_TRUE(MessageDifferencer::Equals(message, again)) << message.DebugString() << again.DebugString();
  }
}

TEST(WireMessagesTest, EveryMessageIsCompared) {
  const FileDescriptor& broker = *v1::PublishRequest::descriptor()->file();
  const FileDescriptor& array = *v1::Share::descriptor()->file();
  const FileDescriptor& tiers = *v1::TierRequest::descriptor()->file();
  EXPECT_EQ(kMessages, broker.message_type_count() + array.message_type_count() + tiers.message_type_count());
}

}  // namespace
}  // namespace arraybridge

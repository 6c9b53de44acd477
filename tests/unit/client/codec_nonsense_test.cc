// SPDX-License-Identifier: Apache-2.0
// Answers of an untrusted broker: every decoder returns an error or a value for any bytes.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/wire/codec.h"
#include "tests/unit/client/some_messages.h"

namespace arraybridge {
namespace {

// Runs every decoder on every prefix and every changed byte of every answer: an error or a value, never a crash.
TEST(CodecNonsenseTest, TruncatedAndChangedAnswersAreErrorsAtWorst) {
  v1::OpenSessionResponse opened;
  *opened.mutable_server() = SomeServer();
  v1::AllocateResponse allocated;
  *allocated.mutable_handle() = SomeShare().handle();
  allocated.add_returned()->set_size(512);
  v1::PublishResponse published;
  published.set_name("x");
  published.add_returned()->set_size(512);
  v1::ExportResponse exported;
  *exported.mutable_handle() = SomeShare().handle();
  v1::Error error;
  error.set_message("m");
  (*error.mutable_metadata())["k"] = "v";
  const std::vector<std::string> answers{opened.SerializeAsString(),     SomeServer().SerializeAsString(),
                                         allocated.SerializeAsString(),  published.SerializeAsString(),
                                         exported.SerializeAsString(),   SomeAcquired().SerializeAsString(),
                                         SomeList().SerializeAsString(), SomeStats().SerializeAsString(),
                                         error.SerializeAsString(),      SomeEvents().SerializeAsString()};
  const std::vector<std::function<bool(std::string_view)>> decoders{
      [](auto bytes) { return codec::Read<wire::OpenSessionResponse>(bytes).ok(); },
      [](auto bytes) { return codec::Read<wire::GetServerInfoResponse>(bytes).ok(); },
      [](auto bytes) { return codec::Read<wire::AllocateResponse>(bytes).ok(); },
      [](auto bytes) { return codec::Read<wire::PublishResponse>(bytes).ok(); },
      [](auto bytes) { return codec::Read<wire::OpenChannelResponse>(bytes).ok(); },
      [](auto bytes) { return codec::DecodeExported(bytes).ok(); },
      [](auto bytes) { return DecodeShares(bytes).ok(); },
      [](auto bytes) { return codec::DecodeListed(bytes).ok(); },
      [](auto bytes) { return codec::DecodeStats(bytes).ok(); },
      [](auto bytes) { return codec::DecodeError(5, bytes).ok(); },
      [](auto bytes) { return codec::Read<wire::WatchResponse>(bytes).ok(); },
      [](auto bytes) { return codec::DecodeEvents(bytes).ok(); },
      [](auto bytes) { return codec::Read<wire::WithdrawResponse>(bytes).ok(); }};
  size_t refused = 0;
  for (const std::string& answer : answers) {
    for (const auto& decode : decoders) {
      for (size_t length = 0; length <= answer.size(); ++length) {
        refused += decode(std::string_view(answer).substr(0, length)) ? 0 : 1;
      }
      for (size_t at = 0; at < answer.size(); ++at) {
        for (const int change : {1, 2, 4, 7, 128, 255}) {
          std::string changed = answer;
          changed[at] = static_cast<char>(changed[at] ^ change);
          refused += decode(changed) ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(refused, 0u);
}

TEST(CodecNonsenseTest, SenselessAnswersAreRefused) {
  v1::AcquireResponse message = SomeAcquired();
  message.mutable_shares(0)->mutable_share()->mutable_handle()->set_size(1 << 21);  // offset + size > arena
  EXPECT_EQ(DecodeShares(message.SerializeAsString()).status().code(), Code::kDataLoss);
  message = SomeAcquired();
  message.mutable_shares(0)->mutable_share()->mutable_handle()->set_kind(v1::HANDLE_KIND_UNSPECIFIED);
  EXPECT_EQ(DecodeShares(message.SerializeAsString()).status().code(), Code::kDataLoss);
  message = SomeAcquired();
  message.mutable_shares(0)->mutable_share()->clear_handle();
  EXPECT_EQ(DecodeShares(message.SerializeAsString()).status().code(), Code::kDataLoss);
}

// The publisher of a share describes its arrays; the broker does not vouch for them.
TEST(CodecNonsenseTest, AnArrayThatCannotBeReadIsAnErrorOfItsShareAlone) {
  for (const auto& spoil : std::vector<std::function<void(v1::ArraySpec&)>>{
           [](auto& spec) { spec.set_lanes(4); }, [](auto& spec) { spec.set_bits(264); },
           [](auto& spec) { spec.set_bits(0); }, [](auto& spec) { spec.set_code(300); }}) {
    v1::Share share = SomeShare();
    spoil(*share.mutable_specs()->mutable_arrays(0));
    const auto described = codec::DecodeShare(share.SerializeAsString());
    ASSERT_TRUE(described.ok()) << described.status().ToString();
    EXPECT_EQ(described->arrays.code(), Code::kInvalidArgument);
    EXPECT_EQ(described->arrays.reason(), "ELEMENT_TYPE");
    EXPECT_EQ(described->share.arrays.size(), static_cast<size_t>(share.specs().arrays_size()));

    v1::ListResponse list = SomeList();
    *list.add_shares()->mutable_share() = share;
    const auto listed = codec::DecodeListed(list.SerializeAsString());
    ASSERT_TRUE(listed.ok()) << listed.status().ToString();
    EXPECT_EQ(listed->shares.size(), static_cast<size_t>(list.shares_size()));
  }
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/share_wire.h"

#include <gtest/gtest.h>

#include <string>

#include "arraybridge/v1/broker.pb.h"

namespace arraybridge::daemon {
namespace {

LeasedShare Leased(bool everything) {
  auto facts = std::make_shared<ShareFacts>();
  facts->id = ShareId{300};
  facts->ns = "ns";
  facts->name = std::string(200, 'n');
  facts->generation = UINT64_MAX;
  facts->unnamed = everything;
  if (everything) {
    const auto client = std::make_shared<const std::string>("camera");
    facts->sent = std::make_unique<const SentFacts>(SentFacts{301, 2, UINT64_MAX, 4711, client});
  }
  v1::Share said;
  said.set_metadata("meta");
  facts->description = said.SerializeAsString();
  LeasedShare leased;
  leased.lease = LeaseId{7};
  leased.facts = facts;
  if (everything) leased.receiver = ChannelEndId{12};
  leased.handle.kind = HandleKind::kCudaIpc;
  leased.handle.arena = 5;
  leased.handle.generation = 6;
  leased.handle.offset = 1 << 20;
  leased.handle.size = 4096;
  leased.handle.arena_size = 1ull << 40;
  leased.handle.device = Device{kDeviceCuda, -1, "GPU-1"};
  if (everything) leased.handle.opaque = std::string(64, 'h');
  if (everything) leased.fence.event = std::string(64, 'e');
  leased.immutability = Immutability::kByContract;
  return leased;
}

void ExpectSaid(const v1::LeasedShare& message, const LeasedShare& leased) {
  EXPECT_EQ(message.lease(), Number(leased.lease));
  ASSERT_EQ(message.has_sent(), leased.facts->sent != nullptr);
  if (message.has_sent()) {
    EXPECT_EQ(message.sent().sequence(), 301u);
    EXPECT_EQ(message.sent().stream(), 2u);
    EXPECT_EQ(message.sent().time_ns(), UINT64_MAX);
    EXPECT_EQ(message.sent().process_id(), 4711u);
    EXPECT_EQ(message.sent().client(), "camera");
    EXPECT_EQ(message.sent().receiver(), 12u);
  }
  const v1::Share& share = message.share();
  EXPECT_EQ(share.id(), Number(leased.facts->id));
  EXPECT_EQ(share.namespace_(), leased.facts->ns);
  EXPECT_EQ(share.name(), leased.facts->name);
  EXPECT_EQ(share.generation(), leased.facts->generation);
  EXPECT_EQ(share.unnamed(), leased.facts->unnamed);
  EXPECT_EQ(share.immutability(), v1::IMMUTABILITY_BY_CONTRACT);
  EXPECT_EQ(share.metadata(), "meta");
  EXPECT_EQ(share.fence().opaque(), leased.fence.event);
  EXPECT_EQ(share.fence().kind(), leased.fence.done() ? v1::Fence::DONE : v1::Fence::EVENT);
  const v1::Handle& handle = share.handle();
  EXPECT_EQ(handle.kind(), v1::HANDLE_KIND_CUDA_IPC);
  EXPECT_EQ(handle.arena(), 5u);
  EXPECT_EQ(handle.generation(), 6u);
  EXPECT_EQ(handle.offset(), 1u << 20);
  EXPECT_EQ(handle.size(), 4096u);
  EXPECT_EQ(handle.arena_size(), 1ull << 40);
  EXPECT_EQ(handle.device().type(), kDeviceCuda);
  EXPECT_EQ(handle.device().id(), -1);
  EXPECT_EQ(handle.device().uuid(), "GPU-1");
  EXPECT_EQ(handle.opaque(), leased.handle.opaque);
}

TEST(ShareWireTest, EveryFieldOfEveryShareIsReadBack) {
  std::string response;
  const LeasedShare shares[] = {Leased(true), Leased(false), Leased(true)};
  for (const LeasedShare& leased : shares) AppendLeased(leased, &response);
  AppendDescriptorArena(0, &response);
  AppendDescriptorArena(UINT64_MAX, &response);
  v1::AcquireResponse message;
  ASSERT_TRUE(message.ParseFromString(response));
  ASSERT_EQ(message.shares_size(), 3);
  for (int i = 0; i < 3; ++i) ExpectSaid(message.shares(i), shares[i]);
  EXPECT_EQ(message.descriptor_arena(), UINT64_MAX);
}

TEST(ShareWireTest, WhatIsReusedKeepsItsRoom) {
  std::string response;
  AppendLeased(Leased(true), &response);
  const std::string first = response;
  const char* const room = response.data();
  response.clear();
  AppendLeased(Leased(true), &response);
  EXPECT_EQ(response.data(), room);
  EXPECT_EQ(response, first);
}

TEST(ShareWireTest, EveryFieldOfTheMessagesIsWritten) {
  // The encoder would drop a field that is new in the .proto.
  EXPECT_EQ(v1::AcquireResponse::descriptor()->field_count(), 3);
  EXPECT_EQ(v1::LeasedShare::descriptor()->field_count(), 3);
  EXPECT_EQ(v1::Sent::descriptor()->field_count(), 6);
  EXPECT_EQ(v1::Share::descriptor()->field_count(), 11);
  EXPECT_EQ(v1::Handle::descriptor()->field_count(), 8);
  EXPECT_EQ(v1::Device::descriptor()->field_count(), 3);
  EXPECT_EQ(v1::Fence::descriptor()->field_count(), 2);
}

}  // namespace
}  // namespace arraybridge::daemon

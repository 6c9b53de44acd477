// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/message_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "daemon/service/wire/messages.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/release_limit.h"
#include "tests/unit/service/asked.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

v1::PublishRequest GoodPublish() {
  v1::PublishRequest request;
  request.set_namespace_("default");
  request.set_name("x");
  request.set_size(4096);
  v1::ArraySpec* spec = request.mutable_specs()->add_arrays();
  spec->set_bits(32);
  spec->set_lanes(1);
  spec->add_shape(16);
  spec->set_offset(256);
  spec->set_size(64);
  return request;
}

v1::ArraySpec& Spec(v1::PublishRequest& request) { return *request.mutable_specs()->mutable_arrays(0); }

void ExpectRefused(const Status& status, const std::string& named) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(named));
}

const Limits kLimits;

TEST(MessageLimitsTest, AGoodPublishPasses) { EXPECT_TRUE(CheckPublish(kLimits, Asked(GoodPublish())).ok()); }

TEST(MessageLimitsTest, EachSizeOfAPublishHasItsLimit) {
  auto request = GoodPublish();
  request.set_name(std::string(kLimits.name_bytes_max + 1, 'n'));
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "name_bytes_max");
  request = GoodPublish();
  request.set_namespace_(std::string(kLimits.name_bytes_max + 1, 'n'));
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "name_bytes_max");
  request = GoodPublish();
  request.set_structure(std::string(kLimits.structure_bytes_max + 1, 's'));
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "structure_bytes_max");
  request = GoodPublish();
  request.set_metadata(std::string(kLimits.metadata_bytes_max + 1, 'm'));
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "metadata_bytes_max");
  request = GoodPublish();
  Spec(request).set_dtype(std::string(kLimits.spec_bytes_max + 1, 'd'));
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "spec_bytes_max");
  request = GoodPublish();
  request.mutable_fence()->set_opaque("f");
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "the fence has 1 bytes; its kind has 0");
  request.mutable_fence()->set_kind(v1::Fence::EVENT);
  for (const size_t bytes : {size_t{0}, size_t{63}, size_t{65}}) {
    request.mutable_fence()->set_opaque(std::string(bytes, 'f'));
    ExpectRefused(CheckPublish(kLimits, Asked(request)), "bytes; its kind has 64");
  }
  request.mutable_fence()->set_opaque(std::string(64, 'f'));
  EXPECT_TRUE(CheckPublish(kLimits, Asked(request)).ok());
}

TEST(MessageLimitsTest, WhatIsPublishedFitsIntoOneAnswer) {
  auto request = GoodPublish();
  request.set_structure(std::string(kLimits.structure_bytes_max, 's'));
  request.set_metadata(std::string(kLimits.metadata_bytes_max, 'm'));
  EXPECT_TRUE(CheckPublish(kLimits, Asked(request)).ok());
  for (int i = 0; i < 16; ++i) {
    *request.mutable_specs()->add_arrays() = Spec(request);
    request.mutable_specs()->mutable_arrays(i)->set_dtype(std::string(1000, 'd'));
  }
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "the description");
}

TEST(MessageLimitsTest, TheNumberOfArraysAndTheirRankHaveLimits) {
  auto request = GoodPublish();
  request.mutable_specs()->clear_arrays();
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "at least one array");
  request = GoodPublish();
  for (uint64_t i = 0; i < kLimits.arrays_per_share_max; ++i) *request.mutable_specs()->add_arrays() = Spec(request);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "arrays_per_share_max");
  request = GoodPublish();
  for (uint64_t i = 0; i < kLimits.rank_max; ++i) Spec(request).add_shape(1);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "rank_max");
}

TEST(MessageLimitsTest, ArraysLieInsideTheirShare) {
  auto request = GoodPublish();
  Spec(request).set_offset(257);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "multiple of 256");
  request = GoodPublish();
  Spec(request).set_size(4096);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "share of 4096 bytes");
  request = GoodPublish();
  Spec(request).set_size(std::numeric_limits<uint64_t>::max());  // offset + size would wrap to 255
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "share of 4096 bytes");
  request = GoodPublish();
  Spec(request).set_offset(8192);
  Spec(request).set_size(0);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "share of 4096 bytes");
}

// The bytes that shape and strides address, whatever sizes are claimed. The share has 4096 bytes; the array is at byte
// 256.
TEST(MessageLimitsTest, WhatShapeAndStridesComeToLiesInsideTheShare) {
  const auto check = [](uint32_t bits, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    auto request = GoodPublish();
    Spec(request).set_bits(bits);
    Spec(request).clear_shape();
    for (const int64_t extent : shape) Spec(request).add_shape(extent);
    for (const int64_t stride : strides) Spec(request).add_strides(stride);
    return CheckPublish(kLimits, Asked(request));
  };
  constexpr int64_t kHuge = int64_t{1} << 40;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const Status& good : {check(8, {3840}, {}), check(32, {960}, {}), check(4, {7680}, {}), check(4, {7679}, {}),
                             check(8, {}, {}), check(8, {kHuge, kHuge, 0}, {}), check(8, {0, kHuge, kHuge}, {}),
                             check(8, {3840}, {1}), check(32, {2, 2}, {-64, 1}), check(8, {60, 64}, {0, 1}),
                             check(8, {kHuge, 0}, {kMost, 1}), check(8, {1}, {kMost}), check(4, {7680}, {1})}) {
    EXPECT_TRUE(good.ok()) << good.ToString();
  }
  for (const Status& lie :
       {check(8, {3841}, {}), check(32, {961}, {}), check(4, {7681}, {}), check(8, {kHuge, kHuge}, {}),
        check(64, {kMost, 2}, {}), check(1024, {31}, {}), check(8, {kMost, kMost, kMost}, {}), check(8, {3841}, {1}),
        check(8, {2}, {3840}), check(32, {2}, {-65}), check(8, {3}, {kMost}), check(8, {2, 2}, {kMost, kMost}),
        check(8, {kHuge, 1024}, {0, 1}), check(8, {2}, {-kMost - 1})}) {
    ExpectRefused(lie, "array 0");
  }
  ExpectRefused(check(8, {kHuge, kHuge}, {}), "array 0 has more elements than fit into 64 bits");
  ExpectRefused(check(8, {3841}, {}), "3841 elements, each of 8 bits, from byte 256 of a share of 4096 bytes");
  ExpectRefused(check(7, {8}, {}), "elements of 7 bits");
}

TEST(MessageLimitsTest, FormsThatNoClientReadsAreRefused) {
  auto request = GoodPublish();
  Spec(request).set_bits(264);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "elements of 264 bits");
  request = GoodPublish();
  Spec(request).set_code(300);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "type code 300");
  EXPECT_EQ(CheckPublish(kLimits, Asked(request)).reason(), "ELEMENT_TYPE");
  request = GoodPublish();
  Spec(request).set_lanes(4);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "lanes");
  request = GoodPublish();
  Spec(request).set_bits(0);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "0 bits");
  request = GoodPublish();
  Spec(request).set_shape(0, -1);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "negative extent");
  request = GoodPublish();
  Spec(request).add_strides(1);
  Spec(request).add_strides(1);
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "strides");
  request = GoodPublish();
  request.mutable_fence()->set_kind(static_cast<v1::Fence::Kind>(7));
  ExpectRefused(CheckPublish(kLimits, Asked(request)), "fence kind");
}

TEST(MessageLimitsTest, SharesAreCountedAndNamed) {
  v1::AcquireRequest request;
  ExpectRefused(CheckShares(kLimits, FromMessage(request.shares())), "names no share");
  request.add_shares();
  ExpectRefused(CheckShares(kLimits, FromMessage(request.shares())), "a name that is not empty");
  request.mutable_shares(0)->set_id(0);
  ExpectRefused(CheckShares(kLimits, FromMessage(request.shares())), "an id that is not 0");
  request.mutable_shares(0)->set_name(std::string(kLimits.name_bytes_max + 1, 'n'));
  ExpectRefused(CheckShares(kLimits, FromMessage(request.shares())), "maximum 255");
  request.mutable_shares(0)->set_name("x");
  EXPECT_TRUE(CheckShares(kLimits, FromMessage(request.shares())).ok());
  for (uint64_t i = 0; i < kLimits.names_per_request; ++i) request.add_shares()->set_name("x");
  ExpectRefused(CheckShares(kLimits, FromMessage(request.shares())), "maximum 256");
}

// The broker's lock is held for the whole release.
TEST(MessageLimitsTest, OneReleaseGivesBackSoMuch) {
  v1::ReleaseRequest release;
  for (uint64_t i = 0; i < kReleaseNumbersMax - 4; ++i) release.add_leases(i);
  release.add_arenas(1);
  release.add_unmapped(1);
  release.add_done(1);
  release.add_lost(1);
  EXPECT_TRUE(CheckRelease(As<wire::ReleaseRequest>(release)).ok());
  release.add_direct_channels(1);
  ExpectRefused(CheckRelease(As<wire::ReleaseRequest>(release)),
                "1025 leases, arenas, shares and direct channels in one Release (at most 1024)");
  EXPECT_EQ(CheckRelease(As<wire::ReleaseRequest>(release)).reason(), "TOO_MANY");
  release.clear_leases();
  EXPECT_TRUE(CheckRelease(As<wire::ReleaseRequest>(release)).ok());
  for (uint64_t i = 0; i <= kReleaseNumbersMax; ++i) release.add_unmapped(i);
  EXPECT_FALSE(CheckRelease(As<wire::ReleaseRequest>(release)).ok());
}

TEST(MessageLimitsTest, ListsHaveLimits) {
  v1::ListRequest list;
  list.set_name_prefix(std::string(kLimits.name_bytes_max + 1, 'n'));
  ExpectRefused(CheckList(kLimits, list), "maximum 255");
  list.clear_name_prefix();
  list.set_page_token(std::string(2 * kLimits.name_bytes_max + 65, 't'));
  ExpectRefused(CheckList(kLimits, list), "page token");
  list.clear_page_token();
  list.set_kind(static_cast<v1::ListRequest::Kind>(42));
  ExpectRefused(CheckList(kLimits, list), "list kind");
}

TEST(MessageLimitsTest, AHelloNamesBothProtocolRanges) {
  v1::OpenSessionRequest hello;
  hello.set_protocol_min(kProtocolVersion + 1);
  hello.set_protocol_max(kProtocolVersion + 3);
  const Status status = CheckHello(As<wire::OpenSessionRequest>(hello));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("protocol 2 to 4"));
  EXPECT_THAT(status.message(), HasSubstr("broker 1 to 1"));
  hello.set_protocol_min(1);
  EXPECT_TRUE(CheckHello(As<wire::OpenSessionRequest>(hello)).ok());
  hello.set_client(std::string(65, 'c'));
  ExpectRefused(CheckHello(As<wire::OpenSessionRequest>(hello)), "client's name");
  hello.clear_client();
  hello.set_token(std::string(257, 't'));
  ExpectRefused(CheckHello(As<wire::OpenSessionRequest>(hello)), "the token has 257 bytes");
  hello.clear_token();
  v1::ClientCapabilities& capabilities = *hello.mutable_capabilities();
  for (int i = 0; i < 256; ++i) capabilities.add_gpu_uuids(std::string(96, 'G'));
  EXPECT_TRUE(CheckHello(As<wire::OpenSessionRequest>(hello)).ok());
  capabilities.mutable_gpu_uuids(255)->push_back('G');
  ExpectRefused(CheckHello(As<wire::OpenSessionRequest>(hello)), "UUID of a GPU");
  capabilities.mutable_gpu_uuids(255)->pop_back();
  capabilities.add_gpu_uuids("G");
  ExpectRefused(CheckHello(As<wire::OpenSessionRequest>(hello)), "257 GPUs");
  capabilities.clear_gpu_uuids();
  for (int i = 0; i < 16; ++i) capabilities.add_kinds(v1::HANDLE_KIND_MEMFD);
  EXPECT_TRUE(CheckHello(As<wire::OpenSessionRequest>(hello)).ok());
  capabilities.add_kinds(v1::HANDLE_KIND_MEMFD);
  ExpectRefused(CheckHello(As<wire::OpenSessionRequest>(hello)), "17 handle kinds");
}

}  // namespace
}  // namespace arraybridge::daemon

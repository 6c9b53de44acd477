// SPDX-License-Identifier: Apache-2.0
// Claims: one session makes a share, and the others wait for it.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/service/verbs_fixture.h"

namespace arraybridge::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class VerbsClaimTest : public VerbsTest {
 protected:
  static v1::ClaimRequest RequestOf(uint64_t timeout_ms, uint64_t lifetime_ms = 0) {
    v1::ClaimRequest request;
    request.set_name("m");
    request.set_timeout_ms(timeout_ms);
    request.set_lifetime_ms(lifetime_ms);
    return request;
  }
  auto StartClaim(const Caller& caller, uint64_t timeout_ms = kLong) {
    return door().Claim(caller, RequestOf(timeout_ms));
  }
  uint64_t Claimed(const Caller& caller, uint64_t lifetime_ms = 0) {
    const auto answer = door().Claim(caller, RequestOf(0, lifetime_ms))->Get();
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? answer->message.claim() : 0;
  }
  void Release(const Caller& caller, uint64_t claim) {
    v1::ClaimRequest request;
    request.set_claim(claim);
    request.set_release(true);
    EXPECT_TRUE(door().Claim(caller, request)->Get().ok());
  }
  uint64_t waiting() { return door().GetStats(Open(), {})->message.waiting(); }
};

TEST_F(VerbsClaimTest, TheShareAnswersAllThatWaitForIt) {
  const Caller maker = Open();
  ASSERT_NE(Claimed(maker), 0u);
  const v1::Handle arena = Arena(maker, kMiB);
  auto first = StartClaim(Open());
  auto second = StartClaim(Open(Door::kGrpc));
  EXPECT_EQ(waiting(), 2u);
  ASSERT_TRUE(Publish(maker, arena, "m").ok());
  EXPECT_EQ(first->Get()->message.claim(), 0u);
  EXPECT_EQ(second->Get()->message.claim(), 0u);
  EXPECT_EQ(Claimed(Open()), 0u) << "the share is there";
  EXPECT_EQ(waiting(), 0u);
}

TEST_F(VerbsClaimTest, ItPassesToTheFirstThatWaits) {
  const Caller maker = Open();
  const uint64_t claim = Claimed(maker);
  const Caller next = Open();
  auto first = StartClaim(next);
  auto second = StartClaim(Open());
  Release(maker, claim + 1);
  EXPECT_EQ(waiting(), 2u) << "the maker has no such claim";
  Release(maker, claim);
  EXPECT_NE(first->Get()->message.claim(), 0u);
  EXPECT_EQ(waiting(), 1u);
  verbs().sessions.EndSession(next.session, EndCause::kKilled);
  EXPECT_NE(second->Get()->message.claim(), 0u);
}

TEST_F(VerbsClaimTest, AWaitEndsAtItsDeadlineAndNamesTheHolder) {
  ASSERT_NE(Claimed(Open()), 0u);
  const auto refused = StartClaim(Open(), 5)->Get();
  EXPECT_EQ(refused.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(refused.status().message(),
              AllOf(HasSubstr("timed out after 5 ms: share 'm'"), HasSubstr("has claimed")));
  EXPECT_EQ(StartClaim(Open(), 0)->Get().status().reason(), "NAME_CLAIMED");
}

TEST_F(VerbsClaimTest, AWaitTakesAnExpiredClaimAtItsDeadline) {
  ASSERT_NE(Claimed(Open(), 1), 0u);
  EXPECT_NE(StartClaim(Open(), 50)->Get()->message.claim(), 0u);
}

TEST_F(VerbsClaimTest, AnAnswerThatCannotArriveGivesTheClaimBack) {
  const Caller maker = Open();
  const auto granted = StartClaim(maker)->Get();
  auto waits = StartClaim(Open());
  verbs().TakeBack(maker, Verb::kClaim, granted->message.SerializeAsString());
  EXPECT_NE(waits->Get()->message.claim(), 0u);
}

TEST_F(VerbsClaimTest, WaitsAreChargedToTheirUser) {
  config_.limits.requests_per_uid = 1;
  ASSERT_NE(Claimed(Open()), 0u);
  const Caller waits = Open();
  auto first = StartClaim(waits);
  EXPECT_THAT(StartClaim(Open())->Get().status().message(), HasSubstr("requests_per_uid"));
  verbs().sessions.EndSession(waits.session);
  EXPECT_EQ(waiting(), 0u) << "the waits of a session end with it";
}

TEST_F(VerbsClaimTest, ADrainingBrokerGrantsNoneAndTakesThemBack) {
  const Caller maker = Open();
  const Caller other = Open();
  const uint64_t claim = Claimed(maker);
  auto waits = StartClaim(other);
  verbs().Drain();
  EXPECT_EQ(waits->Get().status().reason(), "DRAINING");
  Release(maker, claim);
  EXPECT_EQ(StartClaim(other)->Get().status().reason(), "DRAINING");
}

TEST_F(VerbsClaimTest, ARequestWithoutAnAnswerClaimsNothing) {
  Caller silent = Open();
  silent.hears = false;
  EXPECT_EQ(StartClaim(silent)->Get().status().code(), Code::kInvalidArgument);
  EXPECT_NE(Claimed(Open()), 0u);
}

}  // namespace
}  // namespace arraybridge::daemon

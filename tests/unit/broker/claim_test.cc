// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "daemon/broker/objects/claim.h"
#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class ClaimTest : public BrokerTest {
 protected:
  // The number of the claim; 0: the share is there.
  Result<uint64_t> Claim(SessionId session, uint64_t held = 0, milliseconds lifetime = {}, ShareKey key = {.name = "m"},
                         std::string_view ns = "default") {
    return broker().ClaimName(session, ns, key, lifetime, held);
  }
};

const auto kClaimed = FailsWith(Code::kNotFound, "NAME_CLAIMED");

TEST_F(ClaimTest, OneSessionHoldsItAndReleasesIt) {
  const SessionId one = Open();
  const SessionId two = Open();
  const auto claim = Claim(one);
  ASSERT_TRUE(claim.ok() && *claim != 0);
  EXPECT_THAT(Claim(two), kClaimed);
  EXPECT_THAT(Claim(two, *claim), kClaimed) << "the claim is not its own";
  EXPECT_THAT(Claim(one), kClaimed) << "another thread of the holder";
  EXPECT_EQ(*Claim(one, *claim), *claim);
  EXPECT_THAT(Claim(two).status().message(), HasSubstr("('test') has claimed its name"));
  EXPECT_EQ(broker().ReleaseClaim(two, *claim), nullptr);
  const auto ended = broker().ReleaseClaim(one, *claim);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->name, "m");
  EXPECT_EQ(broker().ReleaseClaim(one, *claim), nullptr);
  EXPECT_NE(*Claim(two), *claim);
}

TEST_F(ClaimTest, EndsWhenItsSessionPublishesTheName) {
  const SessionId maker = Open();
  const SessionId other = Open();
  const auto arena = Arena(maker);
  const auto others = Arena(other);
  ASSERT_TRUE(Claim(maker).ok());
  Publish(maker, arena, "n");
  EXPECT_THAT(Claim(other), kClaimed) << "that was another name";
  const uint64_t first = Publish(other, others, "m").generation;
  EXPECT_THAT(Claim(other, 0, {}, {.name = "m", .newer_than = first}), kClaimed) << "only the holder ends it";
  EXPECT_EQ(*Claim(other), 0u) << "the share is there";
  auto call = Call(arena, "m", 256);
  call.replace = true;
  ASSERT_TRUE(broker().Publish(maker, std::move(call)).ok());
  EXPECT_EQ(*Claim(other, 0, {}, {.name = "m", .newer_than = first}), 0u);
  EXPECT_NE(*Claim(other, 0, {}, {.name = "m", .newer_than = ~0ull}), 0u) << "no share is that new";
}

TEST_F(ClaimTest, EndsWithItsSession) {
  const SessionId holder = Open();
  ASSERT_TRUE(Claim(holder).ok());
  ASSERT_TRUE(Claim(holder, 0, {}, {.name = "n"}, "project").ok());
  std::vector<std::shared_ptr<const daemon::Claim>> ended;
  broker().EndSession(holder, &ended);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[1]->ns, "project");
  EXPECT_EQ(ended[1]->owner, kAlice);
  EXPECT_NE(*Claim(Open()), 0u);
}

TEST_F(ClaimTest, GoesToTheNextThatAsksAfterItsLifetime) {
  const SessionId holder = Open();
  const SessionId next = Open();
  const uint64_t claim = *Claim(holder, 0, milliseconds(1));
  std::this_thread::sleep_for(milliseconds(2));  // its lifetime passes
  EXPECT_EQ(*Claim(holder, claim, milliseconds(1)), claim) << "no other session has asked";
  std::this_thread::sleep_for(milliseconds(2));
  const uint64_t taken = *Claim(next, 0, milliseconds(60'000));
  EXPECT_NE(taken, 0u);
  EXPECT_THAT(Claim(holder, claim), kClaimed);
  EXPECT_EQ(broker().ReleaseClaim(holder, claim), nullptr) << "the late holder does not end another's claim";
  EXPECT_THAT(Claim(holder), kClaimed);
}

TEST_F(ClaimTest, NeedsTheRightToWrite) {
  const auto user = [](uint32_t uid, Right right) { return AccessEntry{AccessEntry::Who::kUser, uid, {}, right}; };
  config_.namespaces["m"].access = {user(kAlice, Right::kWrite), user(kBob, Right::kRead)};
  const SessionId alice = Open(kAlice);
  const SessionId bob = Open(kBob);
  EXPECT_THAT(Claim(bob, 0, {}, {.name = "a"}, "m"), FailsWith(Code::kPermissionDenied, "NAMESPACE_READ_ONLY"));
  ASSERT_TRUE(Claim(alice, 0, {}, {.name = "a"}, "m").ok());
  EXPECT_THAT(Claim(Open(1002), 0, {}, {.name = "a"}, "m"), FailsWith(Code::kPermissionDenied, "NAMESPACE_DENIED"));
  config_.namespaces["m"].access = {user(kAlice, Right::kRead), user(kBob, Right::kWrite)};
  EXPECT_THAT(broker().AdoptNamespaces().without_right, testing::ElementsAre(alice)) << "it holds a claim there";
  EXPECT_THAT(Claim(bob, 0, {}, {.name = "a"}, "m").status().message(), HasSubstr("another user has claimed its name"));
}

TEST_F(ClaimTest, IsRefusedForANameThatNoShareCanHave) {
  for (const std::string& name : {std::string(), std::string("a\nb"), std::string(100'000, 'a')}) {
    EXPECT_EQ(Claim(Open(), 0, {}, {.name = name}).status().code(), Code::kInvalidArgument);
  }
}

TEST_F(ClaimTest, ASessionHoldsABoundedNumber) {
  const SessionId greedy = Open();
  const auto claim = [&](size_t number) {
    const std::string name = std::to_string(number);
    return Claim(greedy, 0, {}, {.name = name});
  };
  config_.limits.claims_per_session = 2;
  const auto too_many = FailsWith(Code::kResourceExhausted, "TOO_MANY_CLAIMS");
  ASSERT_TRUE(claim(0).ok() && claim(1).ok());
  EXPECT_THAT(claim(2), too_many);
  config_.limits.object_bytes_per_uid = 3 * object_bytes::kClaim - 1;
  const SessionId other = Open();
  EXPECT_THAT(Claim(other), too_many) << "of one user";
  broker().EndSession(greedy);
  EXPECT_TRUE(Claim(other).ok());
}

TEST_F(ClaimTest, ANamespaceExistsWithItsClaims) {
  config_.limits.namespaces = 1;
  const SessionId session = Open();
  const uint64_t claim = *Claim(session, 0, {}, {.name = "m"}, "one");
  const auto full = FailsWith(Code::kResourceExhausted, "TOO_MANY_NAMESPACES");
  EXPECT_THAT(Claim(session, 0, {}, {.name = "m"}, "two"), full);
  EXPECT_THAT(Claim(session, claim, {}, {.name = "m"}, "two"), full) << "the claim is one of another namespace";
  broker().ReleaseClaim(session, claim);
  EXPECT_TRUE(Claim(session, 0, {}, {.name = "m"}, "two").ok());
}

}  // namespace
}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/tallies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace arraybridge::daemon {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(TalliesTest, EveryEndHasItsCause) {
  Tallies tallies;
  tallies.CountEnd(EndCause::kClean);
  tallies.CountEnd(EndCause::kDrain);
  tallies.CountEnd(EndCause::kDrain);
  EXPECT_THAT(tallies.ends(), UnorderedElementsAre(Pair("clean", 1), Pair("killed", 0), Pair("protocol", 0),
                                                   Pair("limit", 0), Pair("drain", 2)));
}

TEST(TalliesTest, ALimitIsCalledByItsNameOrElseByTheReason) {
  Tallies tallies;
  tallies.CountRefusal(Verb::kWatch, ResourceExhausted("x").Because("TOO_MANY_WATCHERS").With("limit", "watchers"));
  tallies.CountRefusal(Verb::kPublish, ResourceExhausted("x").Because("CHANNEL_FULL"));
  tallies.CountRefusal(Verb::kPublish, ResourceExhausted("x"));
  EXPECT_THAT(tallies.limit_hits(),
              UnorderedElementsAre(Pair("watchers", 1), Pair("channel_full", 1), Pair("other", 1)));
  EXPECT_THAT(tallies.auth_failures(), IsEmpty());
}

TEST(TalliesTest, WhoHasNoRightIsNoLimit) {
  Tallies tallies;
  tallies.CountRefusal(Verb::kAcquire, PermissionDenied("x").Because("NAMESPACE_DENIED"));
  tallies.CountRefusal(Verb::kList, MakeStatus(Code::kUnauthenticated, "x").Because("NO_SESSION"));
  tallies.CountRefusal(Verb::kAcquire, NotFound("x").Because("SHARE_NOT_FOUND"));
  EXPECT_THAT(tallies.auth_failures(), UnorderedElementsAre(Pair("namespace_denied", 1), Pair("no_session", 1)));
  EXPECT_THAT(tallies.limit_hits(), IsEmpty());
}

TEST(TalliesTest, AnAllocationFailsForWantOfSomething) {
  Tallies tallies;
  const auto refuse = [&](const Status& why) { tallies.CountRefusal(Verb::kAllocate, why); };
  refuse(ResourceExhausted("x").Because("QUOTA_EXCEEDED"));
  refuse(ResourceExhausted("x").Because("QUOTA_TOO_SMALL"));
  refuse(ResourceExhausted("x").Because("QUOTA_EXCEEDED").With("limit", "bytes_per_uid"));
  for (const char* const reason : {"WAITED_IN_VAIN", "DEVICE_FULL", "DEVICE_TOO_SMALL", "CUDA_ERROR_OUT_OF_MEMORY"}) {
    refuse(ResourceExhausted("x").Because(reason));
  }
  refuse(Internal("x"));
  refuse(InvalidArgument("the caller's own fault"));
  tallies.CountRefusal(Verb::kPublish, ResourceExhausted("x").Because("QUOTA_EXCEEDED"));
  EXPECT_THAT(tallies.allocation_failures(),
              UnorderedElementsAre(Pair("quota", 2), Pair("limit", 1), Pair("memory", 4), Pair("driver", 1)));
}

}  // namespace
}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "client/lifeline/deferred_errors.h"

#include <gtest/gtest.h>

namespace arraybridge {
namespace {

TEST(DeferredErrorsTest, TheFirstIsToldOnceWithHowManyMore) {
  DeferredErrors errors;
  EXPECT_TRUE(errors.Take().ok());
  errors.Add("a", AlreadyExists("it is there").Because("NAME_TAKEN"));
  const Status one = errors.Take();
  EXPECT_EQ(one.code(), Code::kAlreadyExists);
  EXPECT_EQ(one.reason(), "NAME_TAKEN");
  EXPECT_EQ(one.message(), "the unwaited publish of share 'a' failed: it is there");
  EXPECT_TRUE(errors.Take().ok());
  errors.Add("b", Unavailable("gone"));
  errors.Add("c", AlreadyExists("it is there"));
  errors.Add("d", AlreadyExists("it is there"));
  const Status three = errors.Take();
  EXPECT_EQ(three.code(), Code::kUnavailable);
  EXPECT_EQ(three.message(), "the unwaited publish of share 'b' failed: gone (and 2 more)");
  EXPECT_TRUE(errors.Take().ok());
}

}  // namespace
}  // namespace arraybridge

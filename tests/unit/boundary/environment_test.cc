// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace arraybridge {
namespace {

TEST(EnvironmentTest, ARelativeRuntimeDirectoryIsIgnored) {
  ::setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
  EXPECT_EQ(RuntimeDirectory(), "/run/user/1000");
  for (const char* const none : {"", "relative", "./here", "../run"}) {
    ::setenv("XDG_RUNTIME_DIR", none, 1);
    EXPECT_EQ(RuntimeDirectory(), "") << none;
  }
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(RuntimeDirectory(), "");
}

}  // namespace
}  // namespace arraybridge

#include "daemon/service/system/passed_sockets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace arraybridge {
namespace {

// tests/foreign/test_activation.py tests passed sockets with the real daemon, because descriptors begin at 3.
TEST(PassedSocketsTest, WhatIsMeantForAnotherProcessIsNotOurs) {
  for (const std::string& meant_for : {std::to_string(::getpid() + 1), std::string("x"), std::string()}) {
    ::setenv("LISTEN_PID", meant_for.c_str(), 1);
    ::setenv("LISTEN_FDS", "1", 1);
    ::setenv("LISTEN_FDNAMES", "nonsense", 1);
    auto passed = PassedSockets::FromEnvironment();
    ASSERT_TRUE(passed.ok()) << passed.status().ToString();
    EXPECT_FALSE(passed->Take(PassedSockets::kLifeline).valid());
    EXPECT_EQ(std::getenv("LISTEN_FDS"), nullptr);
    EXPECT_EQ(std::getenv("LISTEN_FDNAMES"), nullptr);
  }
}

TEST(PassedSocketsTest, AnAbsurdNumberIsRefused) {
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  ::setenv("LISTEN_FDS", "1000000", 1);
  EXPECT_EQ(PassedSockets::FromEnvironment().status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/namespace.h"

#include <gtest/gtest.h>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

TEST(NameTest, TakesPrintableTextUpToTheLimit) {
  for (const char* name : {"a", "my/array-1",
                           "f\xC3\xBC\xC3\x9F"
                           "e",
                           "\xE6\x97\xA5\xE6\x9C\xAC", "\xF0\x9F\x90\x9F", " "}) {
    EXPECT_TRUE(CheckName("name", name, 255).ok()) << name;
  }
  EXPECT_TRUE(CheckName("name", std::string(255, 'x'), 255).ok());
}

TEST(NameTest, RefusesTheRestWithoutEchoingIt) {
  const std::string nul("a\0b", 3);
  for (const std::string& name : {std::string(), std::string(256, 'x'), nul, std::string("a\nb"), std::string("\x7F"),
                                  std::string("\xC2\x85"), std::string("\xE2\x80\xA8"), std::string("\x80"),
                                  std::string("\xC3"), std::string("\xC0\xAF"), std::string("\xED\xA0\x80"),
                                  std::string("\xF4\x90\x80\x80"), std::string("\xE0\x80\x80"), std::string("\xFF")}) {
    const Status status = CheckName("the share's name", name, 255);
    EXPECT_THAT(status, FailsWith(Code::kInvalidArgument, "BAD_NAME"));
    EXPECT_TRUE(status.message().starts_with("the share's name ")) << status.message();
    EXPECT_TRUE(name.empty() || status.message().find(name) == std::string::npos);
  }
}

TEST(SecretHashTest, TellsNamesApart) {
  const SecretHash hash;
  EXPECT_EQ(hash("a name of some length"), hash(std::string("a name of some length")));
  EXPECT_NE(hash(""), hash(std::string_view("\0", 1)));
  EXPECT_NE(hash("12345678"), hash("123456780"));
  EXPECT_NE(hash("ab"), hash("ba"));
}

TEST(NamespaceTest, ChargesUpToItsQuotaAndSaysTheNumbers) {
  Namespace ns(1000, "x", 200);
  const auto first = ns.ChargeFor(100);
  ASSERT_TRUE(first.ok());
  const auto refused = ns.ChargeFor(67108864);
  EXPECT_THAT(refused, FailsWith(Code::kResourceExhausted, "QUOTA_EXCEEDED"));
  EXPECT_EQ(refused.status().message(), "namespace 'x': 67108864 bytes exceed the quota (100 of 200 in use)");
  EXPECT_FALSE(ns.unused());
}

}  // namespace
}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/endpoint.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

namespace arraybridge {
namespace {

TEST(EndpointTest, HostsAndPortsAreRead) {
  for (const char* const host : {"127.0.0.1", "broker.test", "fe80::1"}) {
    const bool is_v6 = host[4] == ':';
    const auto endpoint = ReadEndpoint(is_v6 ? Concat('[', host, "]:65535") : Concat(host, ":65535"));
    ASSERT_TRUE(endpoint.ok()) << endpoint.status().ToString();
    EXPECT_EQ(endpoint->host, host);
    EXPECT_EQ(endpoint->port, 65535);
    EXPECT_EQ(endpoint->bracketed, is_v6);
  }
}

TEST(EndpointTest, OtherTextsAreRefused) {
  for (const char* const text : {"", ":", ":9", "host", "host:", "host:x", "host:-1", "host:65536", "host:9 ", "::1:9",
                                 "[host]:9", "[]:9", "[::1]", "[::1]9", "a/b:9", "a@b:9"}) {
    EXPECT_EQ(ReadEndpoint(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(EndpointTest, OnlyNumericAddressesAreAccepted) {
  const auto v4 = NumericAddress(*ReadEndpoint("127.0.0.1:258"));
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->generic()->sa_family, AF_INET);
  EXPECT_EQ(ntohs(reinterpret_cast<const sockaddr_in*>(v4->generic())->sin_port), 258);
  const auto v6 = NumericAddress(*ReadEndpoint("[::1]:258"));
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->generic()->sa_family, AF_INET6);
  EXPECT_EQ(v6->size, sizeof(sockaddr_in6));
  for (const char* const name : {"localhost:1", "127.1:1", "[1::2::3]:1"}) {
    EXPECT_EQ(NumericAddress(*ReadEndpoint(name)).status().code(), Code::kInvalidArgument) << name;
  }
}

TEST(EndpointTest, LoopbackIsRecognised) {
  const auto is_loopback = [](const char* text) { return IsLoopback(*NumericAddress(*ReadEndpoint(text))); };
  for (const char* const here : {"127.0.0.1:1", "127.255.255.255:1", "[::1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(is_loopback(here)) << here;
  }
  for (const char* const wide :
       {"0.0.0.0:1", "128.0.0.1:1", "126.0.0.1:1", "[::]:1", "[fe80::1]:1", "[::ffff:1.2.3.4]:1"}) {
    EXPECT_FALSE(is_loopback(wide)) << wide;
  }
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/remote_connections.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "proto/boundary/endpoint.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

using ::testing::HasSubstr;

// Both ends of a TCP connection; `name` is gRPC's name of the far one.
struct Pair {
  UniqueFd near;
  UniqueFd far;
  std::string name;
};

class RemoteConnectionsTest : public ::testing::Test {
 protected:
  RemoteConnectionsTest() {
    limits_.tcp_connections = 4;
    limits_.tcp_connections_per_address = 3;
    limits_.tcp_connections_per_subject = 2;
  }

  Pair Connect(const std::string& from = "127.0.0.1") {
    const bool v6 = from.find(':') != std::string::npos;
    const std::string host = v6 ? "[" + from + "]:0" : from + ":0";
    const auto here = *NumericAddress(*ReadEndpoint(v6 ? "[::1]:0" : "127.0.0.1:0"));
    const UniqueFd listener(::socket(here.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener.get(), here.generic(), here.size), 0);
    EXPECT_EQ(::listen(listener.get(), 8), 0);
    sockaddr_storage there{};
    socklen_t size = sizeof there;
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&there), &size);
    Pair pair;
    pair.far.reset(::socket(here.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto own = *NumericAddress(*ReadEndpoint(host));
    EXPECT_EQ(::bind(pair.far.get(), own.generic(), own.size), 0);
    EXPECT_EQ(::connect(pair.far.get(), reinterpret_cast<sockaddr*>(&there), size), 0);
    pair.near.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    sockaddr_storage named{};
    size = sizeof named;
    ::getsockname(pair.far.get(), reinterpret_cast<sockaddr*>(&named), &size);
    const auto port = std::to_string(ntohs(reinterpret_cast<sockaddr_in*>(&named)->sin_port));
    pair.name = v6 ? "ipv6:%5B" + from + "%5D:" + port : "ipv4:" + from + ":" + port;
    return pair;
  }
  // The result of a read at the other end: 0 after a shutdown, -1 while nothing has happened.
  static ssize_t Read(const Pair& pair) {
    char byte = 0;
    return ::recv(pair.far.get(), &byte, 1, MSG_DONTWAIT);
  }

  Limits limits_;
  RemoteConnections connections_{limits_};
};

TEST_F(RemoteConnectionsTest, AnAddressHasSoMany) {
  std::vector<Pair> own;
  for (int i = 0; i < 3; ++i) {
    own.push_back(Connect());
    ASSERT_TRUE(connections_.Admit(own.back().near.get()).ok());
  }
  const Pair fourth = Connect();
  EXPECT_THAT(connections_.Admit(fourth.near.get()).message(), HasSubstr("tcp_connections_per_address (3)"));
  const Pair other = Connect("127.0.0.2");
  EXPECT_TRUE(connections_.Admit(other.near.get()).ok());
  own.front().near.reset();  // as gRPC closes it, without a report
  EXPECT_TRUE(connections_.Admit(fourth.near.get()).ok());
}

TEST_F(RemoteConnectionsTest, WhoHasNotShownHimselfMakesRoomTheOldestFirst) {
  std::vector<Pair> all;
  for (const char* const from : {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"}) {
    all.push_back(Connect(from));
    ASSERT_TRUE(connections_.Admit(all.back().near.get()).ok());
  }
  ASSERT_TRUE(connections_.Identify(all[0].name, 1).ok());
  const Pair next = Connect("127.0.0.5");
  EXPECT_TRUE(connections_.Admit(next.near.get()).ok());
  EXPECT_EQ(Read(all[0]), -1);
  EXPECT_EQ(Read(all[1]), 0);
  EXPECT_EQ(Read(all[2]), -1);
  EXPECT_EQ(connections_.Identify(all[1].name, 2).code(), Code::kUnavailable);
  // The next one is refused if all have connections.
  ASSERT_TRUE(connections_.Identify(all[2].name, 2).ok());
  ASSERT_TRUE(connections_.Identify(all[3].name, 3).ok());
  ASSERT_TRUE(connections_.Identify(next.name, 4).ok());
  const Pair last = Connect("127.0.0.6");
  EXPECT_THAT(connections_.Admit(last.near.get()).message(), HasSubstr("limit tcp_connections (4)"));
}

TEST_F(RemoteConnectionsTest, ASubjectHasSoManyAndEndedOnesDoNotCount) {
  Pair first = Connect();
  const Pair second = Connect();
  const Pair third = Connect();
  for (const Pair* const each : std::initializer_list<const Pair*>{&first, &second, &third})
    ASSERT_TRUE(connections_.Admit(each->near.get()).ok());
  EXPECT_TRUE(connections_.Identify(first.name, 1).ok());
  EXPECT_TRUE(connections_.Identify(second.name, 1).ok());
  EXPECT_TRUE(connections_.Identify(second.name, 1).ok());
  EXPECT_THAT(connections_.Identify(third.name, 1).message(), HasSubstr("tcp_connections_per_subject (2)"));
  EXPECT_TRUE(connections_.Identify(third.name, 2).ok());
  const std::string gone = first.name;
  first.near.reset();
  EXPECT_EQ(connections_.Identify(gone, 1).code(), Code::kUnavailable);
  EXPECT_TRUE(connections_.Identify(third.name, 1).ok());
}

TEST_F(RemoteConnectionsTest, NamesAreUnderstoodOrNobodys) {
  for (const char* const name : {"", "fd:7", "unix:/x", "ipv4:127.0.0.1", "ipv4:127.0.0.1:1", "ipv6:%5B::1%5D:1"}) {
    EXPECT_EQ(connections_.Identify(name, 1).code(), Code::kUnavailable) << name;
  }
  const UniqueFd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto loopback = *NumericAddress(*ReadEndpoint("[::1]:0"));
  if (!probe.valid() || ::bind(probe.get(), loopback.generic(), loopback.size) != 0) GTEST_SKIP() << "no IPv6 here";
  const Pair pair = Connect("::1");
  ASSERT_TRUE(connections_.Admit(pair.near.get()).ok());
  EXPECT_TRUE(connections_.Identify(pair.name, 1).ok());
}

}  // namespace
}  // namespace arraybridge

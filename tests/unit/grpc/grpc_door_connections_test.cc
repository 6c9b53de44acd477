// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_door_connections.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

struct Pair {
  UniqueFd ours, theirs;
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    ours.reset(ends[0]);
    theirs.reset(ends[1]);
  }
  std::string name() const { return "fd:" + std::to_string(ours.get()); }
};

Peer Of(uint32_t uid) {
  Peer peer;
  peer.uid = uid;
  return peer;
}

TEST(GrpcDoorConnections, ReturnsThePeerOfAConnection) {
  const Limits limits;
  GrpcDoorConnections connections(limits);
  const Pair pair;
  ASSERT_TRUE(connections.Admit(pair.ours.get(), Of(1000)));
  ASSERT_TRUE(connections.PeerOf(pair.name()));
  EXPECT_EQ(connections.PeerOf(pair.name())->uid, 1000u);
}

TEST(GrpcDoorConnections, ReturnsNoPeerOfOtherNames) {
  const Limits limits;
  GrpcDoorConnections connections(limits);
  const Pair pair;
  ASSERT_TRUE(connections.Admit(pair.ours.get(), Of(1000)));
  for (const std::string& name : {std::string{}, std::string{"fd:"}, std::string{"fd:-1"}, pair.name() + "x",
                                  std::string{"fd:99999999999999"}, std::string{"unix:/x"}, std::string{"fd:0x1"}}) {
    EXPECT_FALSE(connections.PeerOf(name)) << name;
  }
}

TEST(GrpcDoorConnections, AnEndedConnectionHasNoPeerEvenIfItsNumberIsReused) {
  const Limits limits;
  GrpcDoorConnections connections(limits);
  Pair first;
  ASSERT_TRUE(connections.Admit(first.ours.get(), Of(1000)));
  const std::string name = first.name();
  const Pair second;
  const int number = first.ours.get();
  first.ours.reset();
  EXPECT_FALSE(connections.PeerOf(name));
  const UniqueFd recycled{::dup2(second.ours.get(), number)};
  EXPECT_FALSE(connections.PeerOf(name));
  ASSERT_TRUE(connections.Admit(recycled.get(), Of(2000)));
  EXPECT_EQ(connections.PeerOf(name)->uid, 2000u);
}

TEST(GrpcDoorConnections, AUidHasALimitAndEndedConnectionsDoNotCount) {
  Limits limits;
  limits.sessions_per_uid = 1;
  GrpcDoorConnections connections(limits);
  std::vector<Pair> pairs(3);
  ASSERT_TRUE(connections.Admit(pairs[0].ours.get(), Of(1000)));
  ASSERT_TRUE(connections.Admit(pairs[1].ours.get(), Of(1000)));
  EXPECT_FALSE(connections.Admit(pairs[2].ours.get(), Of(1000)));
  EXPECT_FALSE(connections.PeerOf(pairs[2].name()));
  EXPECT_TRUE(connections.Admit(pairs[2].ours.get(), Of(2000)));
  pairs[0].ours.reset();
  const Pair later;
  EXPECT_TRUE(connections.Admit(later.ours.get(), Of(1000)));
}

}  // namespace
}  // namespace arraybridge::daemon

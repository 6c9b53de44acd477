// What a session says to its broker, against a broker of the test's own.
#include "client/session.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "arraybridge/v1/broker.pb.h"
#include "proto/boundary/release_limit.h"
#include "tests/unit/client/quiet_session.h"

namespace arraybridge {
namespace {

std::vector<uint64_t> NumbersFrom(uint64_t first, size_t count) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(SessionTest, WhatIsGivenBackComesInMessagesThatTheBrokerTakes) {
  QuietSession session;
  codec::Release release;
  release.leases = NumbersFrom(1, 3 * kReleaseNumbersMax);
  release.arenas = NumbersFrom(1, 7);
  release.done = NumbersFrom(1, kReleaseNumbersMax + 1);
  release.lost = NumbersFrom(1, 5);
  session->Post(std::move(release));
  std::set<uint64_t> leases, done;
  uint64_t others = 0;
  for (Frame frame; session.Hears(&frame);) {
    v1::ReleaseRequest message;
    ASSERT_TRUE(message.ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size())));
    leases.insert(message.leases().begin(), message.leases().end());
    done.insert(message.done().begin(), message.done().end());
    const int few = message.arenas_size() + message.lost_size();
    EXPECT_LE(static_cast<size_t>(message.leases_size() + message.done_size() + few), kReleaseNumbersMax);
    others += static_cast<uint64_t>(few);
  }
  EXPECT_EQ(leases.size(), 3 * kReleaseNumbersMax);
  EXPECT_EQ(done.size(), kReleaseNumbersMax + 1);
  EXPECT_EQ(others, 12u);
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/traffic.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace arraybridge::daemon {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

uint16_t Number(Verb verb) { return static_cast<uint16_t>(verb); }

TEST(TrafficTest, CountsByDoorVerbAndCode) {
  Traffic traffic;
  EXPECT_TRUE(traffic.Rows().empty());
  traffic.Count(Door::kLifeline, Number(Verb::kAcquire), Code::kOk, microseconds(2));
  traffic.Count(Door::kLifeline, Number(Verb::kAcquire), Code::kNotFound, microseconds(3));
  traffic.Count(Door::kLifeline, Number(Verb::kAcquire), Code::kOk, seconds(60));
  traffic.Count(Door::kGrpc, Number(Verb::kRedeem), Code::kUnauthenticated, microseconds(1));
  const auto rows = traffic.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].verb, "Acquire");
  EXPECT_EQ(rows[0].count, 3u);
  EXPECT_EQ(rows[0].sum, seconds(60) + microseconds(5));
  ASSERT_EQ(rows[0].answers.size(), 2u);
  EXPECT_EQ(rows[0].answers[0].code, "OK");
  EXPECT_EQ(rows[0].answers[0].count, 2u);
  EXPECT_EQ(rows[0].answers[1].code, "NOT_FOUND");
  EXPECT_EQ(rows[1].door, Door::kGrpc);
  EXPECT_EQ(rows[1].verb, "Redeem");
}

TEST(TrafficTest, BucketsAreCumulativeAndTheirEndsBelongToThem) {
  Traffic traffic;
  for (const auto took : {microseconds(0), microseconds(1), microseconds(2), microseconds(3), microseconds(4)}) {
    traffic.Count(Door::kLifeline, Number(Verb::kPublish), Code::kOk, took);
  }
  traffic.Count(Door::kLifeline, Number(Verb::kPublish), Code::kOk, seconds(11));
  const auto row = traffic.Rows().front();
  EXPECT_EQ(row.within[0], 2u);
  EXPECT_EQ(row.within[1], 4u);
  EXPECT_EQ(row.within[2], 5u);
  EXPECT_EQ(row.within.back(), 5u);
  EXPECT_EQ(row.count, 6u);
}

TEST(TrafficTest, WhatDoesNotExistIsCountedAsUnknown) {
  Traffic traffic;
  traffic.Count(Door::kLifeline, 65535, Code::kUnimplemented, microseconds(-1));
  traffic.Count(Door::kLifeline, 0, Code{4000}, microseconds(1));
  const auto rows = traffic.Rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].verb, "unknown");
  EXPECT_EQ(rows[0].count, 2u);
}

TEST(TrafficTest, EveryVerbHasItsName) {
  Traffic traffic;
  for (uint16_t verb = 1; verb <= Number(Verb::kLast); ++verb) {
    traffic.Count(Door::kGrpc, verb, Code::kOk, microseconds(1));
  }
  const auto rows = traffic.Rows();
  EXPECT_EQ(rows.size(), size_t{Number(Verb::kLast)});
  for (const auto& row : rows) EXPECT_NE(row.verb, "unknown");
}

TEST(TrafficTest, WhatIsBegunIsInFlightUntilItEnds) {
  Traffic traffic;
  const auto in_flight = [&] { return traffic.Rows().empty() ? 0 : traffic.Rows().front().in_flight; };
  Traffic::InFlight one = traffic.Begin(Door::kLifeline, Number(Verb::kAcquire));
  ASSERT_EQ(in_flight(), 1u);  // the row exists before anything was answered
  EXPECT_EQ(traffic.Rows().front().count, 0u);
  {
    const Traffic::InFlight dropped = traffic.Begin(Door::kLifeline, Number(Verb::kAcquire));
    EXPECT_EQ(in_flight(), 2u);
  }
  Traffic::InFlight moved = std::move(one);
  one.End();  // it was moved from
  EXPECT_EQ(in_flight(), 1u);
  moved = traffic.Begin(Door::kLifeline, Number(Verb::kAcquire));
  EXPECT_EQ(in_flight(), 1u);
  moved.End();
  moved.End();
  EXPECT_EQ(in_flight(), 0u);
}

TEST(TrafficTest, DescriptorsAreCountedByWhatTheyAreOf) {
  Traffic traffic;
  traffic.CountPassed(PassedFd(UniqueFd(), HandleKind::kCudaVmm).kind(), 1);
  traffic.CountPassed(PassedFd(UniqueFd(), HandleKind::kMemfd).kind(), 1);
  traffic.CountPassed(PassedFd(UniqueFd(), FdKind::kPages).kind(), 2);
  EXPECT_EQ(traffic.passed(FdKind::kMemfd), 1u);
  EXPECT_EQ(traffic.passed(FdKind::kCudaVmm), 1u);
  EXPECT_EQ(traffic.passed(FdKind::kPages), 2u);
}

TEST(TrafficTest, ThreadsLoseNothing) {
  Traffic traffic;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&traffic] {
      for (int n = 0; n < 10000; ++n) traffic.Count(Door::kGrpc, Number(Verb::kList), Code::kOk, microseconds(1));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(traffic.Rows().front().count, 40000u);
}

}  // namespace
}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/keeper/held_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

using Outcome = HeldDescriptors::Outcome;

class HeldDescriptorsTest : public ::testing::Test {
 protected:
  static int Memory() { return ::memfd_create("test", MFD_CLOEXEC); }
  static bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

  Closing closing_;
  UniqueFd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  std::unique_ptr<HeldDescriptors> held_ = std::make_unique<HeldDescriptors>(epoll_.get(), closing_);
};

TEST_F(HeldDescriptorsTest, KeepsTheOrderAndRemovesByName) {
  const int first = Memory();
  EXPECT_EQ(held_->Add("a1", first, false), Outcome::kHeld);
  EXPECT_EQ(held_->Add("c0", Memory(), false), Outcome::kHeld);
  EXPECT_EQ(held_->Add("a1", Memory(), false), Outcome::kHeld);
  EXPECT_EQ(held_->Add("g2", Memory(), false), Outcome::kHeld);
  EXPECT_STREQ(held_->JoinedNames(), "a1:c0:a1:g2");
  held_->Remove("a1");
  EXPECT_STREQ(held_->JoinedNames(), "c0:g2");
  EXPECT_FALSE(IsOpen(first));
  held_->Remove("a1");
  EXPECT_EQ(held_->entries().size(), 2u);
}

TEST_F(HeldDescriptorsTest, WhatTheKeeperWasStartedWithIsNotRemoved) {
  EXPECT_EQ(held_->Add("lifeline", Memory(), false, true), Outcome::kHeld);
  held_->Remove("lifeline");
  EXPECT_EQ(held_->entries().size(), 1u);
}

TEST_F(HeldDescriptorsTest, OneOpenFileUnderOneNameIsHeldOnce) {
  const int memory = Memory();
  const int again = ::dup(memory);
  const int other_name = ::dup(memory);
  EXPECT_EQ(held_->Add("a1", memory, false), Outcome::kHeld);
  EXPECT_EQ(held_->Add("a1", again, false), Outcome::kMerged);
  EXPECT_FALSE(IsOpen(again));
  EXPECT_EQ(held_->Add("a2", other_name, false), Outcome::kHeld);
  // Another opening of the same memory, which can only be read, is another right.
  const std::string path = "/proc/self/fd/" + std::to_string(memory);
  EXPECT_EQ(held_->Add("a1", ::open(path.c_str(), O_RDONLY | O_CLOEXEC), false), Outcome::kHeld);
}

TEST_F(HeldDescriptorsTest, BadNamesAreRefusedAndTheirDescriptorsClosed) {
  for (const std::string& name : {std::string(), std::string(32, 'a'), std::string("a:1"), std::string("a 1")}) {
    const int memory = Memory();
    EXPECT_EQ(held_->Add(name, memory, false), Outcome::kBadName) << name;
    EXPECT_FALSE(IsOpen(memory));
  }
  EXPECT_EQ(held_->Add(std::string(31, 'a'), Memory(), false), Outcome::kHeld);
}

TEST_F(HeldDescriptorsTest, TheNamesFitIntoOneVariable) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  constexpr size_t kFitting = HeldDescriptors::kNamesBytesMax / 32;
  for (size_t i = 0; i < kFitting; ++i) {
    std::string name = std::to_string(i);
    name.insert(0, 31 - name.size(), 'a');
    ASSERT_EQ(held_->Add(name, Memory(), false), Outcome::kHeld) << i;
  }
  EXPECT_EQ(held_->Add("a1", Memory(), false), Outcome::kFull);
  EXPECT_EQ(std::string(held_->JoinedNames()).size(), HeldDescriptors::kNamesBytesMax - 1);
  held_->Remove("a1");
  EXPECT_EQ(held_->entries().size(), kFitting);
}

TEST_F(HeldDescriptorsTest, ALifelineWhoseClientHasClosedIsReported) {
  std::array<int, 2> watched{};
  std::array<int, 2> kept{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, watched.data()), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, kept.data()), 0);
  const UniqueFd of_daemon(::dup(watched[0]));  // the daemon has it open, too
  held_->Add("l1", watched[0], true);
  held_->Add("l2", kept[0], false);
  held_->Add("a1", Memory(), true);  // cannot be polled
  ::close(watched[1]);
  ::close(kept[1]);
  std::array<epoll_event, 4> events{};
  ASSERT_EQ(::epoll_wait(epoll_.get(), events.data(), events.size(), 0), 1);
  held_->RemoveHungUp(events[0].data.u64);
  EXPECT_STREQ(held_->JoinedNames(), "l2:a1");
  EXPECT_EQ(::epoll_wait(epoll_.get(), events.data(), events.size(), 0), 0);
}

// This process must not have the last descriptor: it would sleep in close() if a client wants that.
TEST_F(HeldDescriptorsTest, AnotherProcessClosesWhatMaySleep) {
  std::array<int, 2> lifeline{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lifeline.data()), 0);
  held_->Add("l1", lifeline[0], true);
  held_->Remove("l1");
  EXPECT_TRUE(IsOpen(lifeline[0])) << "others may follow, which the same process closes";
  closing_.Start();
  EXPECT_FALSE(IsOpen(lifeline[0]));
  char byte = 0;
  EXPECT_EQ(::read(lifeline[1], &byte, 1), 0) << "the other process has closed it";
  ::close(lifeline[1]);
  const int large = Memory();
  ASSERT_EQ(::ftruncate(large, 17 << 20), 0);
  held_->Add("a1", large, false);
  held_->Remove("a1");
  EXPECT_FALSE(IsOpen(large));
  for (int i = 0; i < 2; ++i) {
    const pid_t ended = ::waitpid(-1, nullptr, 0);
    ASSERT_GT(ended, 0);
    EXPECT_TRUE(closing_.Ended(ended));
    EXPECT_FALSE(closing_.Ended(ended));
  }
  const int small = Memory();
  held_->Add("a2", small, false);
  held_->Remove("a2");
  EXPECT_FALSE(IsOpen(small));
  EXPECT_EQ(::waitpid(-1, nullptr, 0), -1) << "no process was needed";
}

}  // namespace
}  // namespace arraybridge::daemon

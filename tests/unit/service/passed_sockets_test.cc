// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/passed_sockets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "daemon/memory/descriptor_store.h"
#include "tests/unit/service/passed.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

// Numbers above those that Passed uses need a higher limit than the usual 1,024.
class StoredTest : public ::testing::Test {
 protected:
  StoredTest() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  static UniqueFd Memory() { return Aside(::memfd_create("test", MFD_CLOEXEC)); }
  static UniqueFd Listening() {
    UniqueFd socket = Aside(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr address{};
    address.sa_family = AF_UNIX;
    EXPECT_EQ(::bind(socket.get(), &address, sizeof(sa_family_t)), 0);  // the kernel chooses an abstract name
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    return socket;
  }
  static ino_t InodeOf(const UniqueFd& fd) {
    struct stat found {};
    EXPECT_EQ(::fstat(fd.get(), &found), 0);
    return found.st_ino;
  }
};

TEST_F(StoredTest, StoredEntriesComeApartFromSocketsInTheirOrder) {
  const UniqueFd first = Memory();
  const UniqueFd second = Memory();
  const UniqueFd door = Listening();
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
  const UniqueFd line = Aside(ends[0]);
  const UniqueFd other_end = Aside(ends[1]);
  auto passed = Passed({{"a1f", first.get()}, {"lifeline", door.get()}, {"l7", line.get()}, {"a1f", second.get()}});
  ASSERT_TRUE(passed.ok()) << passed.status().ToString();
  EXPECT_EQ(passed->names(), (std::vector<std::string>{"a1f", "lifeline", "l7", "a1f"}));
  const auto stored = passed->TakeStored();
  ASSERT_EQ(stored.size(), 3u);
  EXPECT_EQ(stored[0].name, "a1f");
  EXPECT_EQ(InodeOf(stored[0].fd), InodeOf(first));
  EXPECT_EQ(stored[1].name, "l7");
  EXPECT_EQ(InodeOf(stored[2].fd), InodeOf(second));
  for (const StoredDescriptor& each : stored) {
    EXPECT_EQ(::fcntl(each.fd.get(), F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::fcntl(each.fd.get(), F_GETFL) & O_NONBLOCK, 0) << each.name;
  }
  EXPECT_NE(::fcntl(passed->Take(PassedSockets::kLifeline).get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_TRUE(passed->TakeStored().empty());
}

TEST_F(StoredTest, AFullStoreIsReceived) {
  constexpr size_t kEntries = 5000;  // the machine may allow 20,000 descriptors
  const UniqueFd memory = Memory();
  const auto passed = Passed(std::vector<std::pair<std::string, int>>(kEntries, {"c0", memory.get()}));
  ASSERT_TRUE(passed.ok()) << passed.status().ToString();
  EXPECT_EQ(passed->names().size(), kEntries);
}

TEST_F(StoredTest, SocketsThatADaemonBoundItselfComeByTheirDoor) {
  const UniqueFd old = Listening();
  const UniqueFd current = Listening();
  const UniqueFd of_manager = Listening();
  const std::string name = PassedSockets::OwnName(PassedSockets::kLifeline, {0x1a, 0x2f03});
  EXPECT_EQ(name, "lifeline.1a.2f03");
  auto passed = Passed({{"lifeline", of_manager.get()}, {"lifeline.1a.9", old.get()}, {name, current.get()}});
  ASSERT_TRUE(passed.ok()) << passed.status().ToString();
  const auto own = passed->TakeOwn(PassedSockets::kLifeline);
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0].name, "lifeline.1a.9");
  EXPECT_EQ(own[1].name, name);
  EXPECT_EQ(InodeOf(own[1].fd), InodeOf(current));
  EXPECT_EQ(InodeOf(passed->Take(PassedSockets::kLifeline)), InodeOf(of_manager));
  EXPECT_TRUE(passed->TakeOwn(PassedSockets::kLifeline).empty());
}

TEST_F(StoredTest, TheLongestOwnNameFitsInAStore) {
  const std::string name = PassedSockets::OwnName(PassedSockets::kLifeline, {~dev_t{0}, ~ino_t{0}});
  EXPECT_LE(name.size(), DescriptorStore::kEntryNameBytesMax) << name;
}

TEST_F(StoredTest, NamesOfAnotherShapeAreRefused) {
  const UniqueFd door = Listening();
  for (const char* const name :
       {"a", "z1", "a1g", "A1", "gizmo.1.2", "lifeline.1", "lifeline.1.", "lifeline.x.1", "."}) {
    const auto passed = Passed({{name, door.get()}});
    EXPECT_THAT(passed.status().message(), HasSubstr(std::string("'") + name + "'"));
  }
}

TEST_F(StoredTest, AStoredSocketOfAnotherKindIsRefused) {
  const UniqueFd memory = Memory();
  EXPECT_EQ(Passed({{"lifeline.1.2", memory.get()}}).status().code(), Code::kInvalidArgument);
}

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
}  // namespace arraybridge::daemon

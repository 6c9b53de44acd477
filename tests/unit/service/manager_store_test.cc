// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/manager_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/service/system/notify.h"

namespace arraybridge::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A holder that remembers what it receives. It reads only while it is awake.
class Holder {
 public:
  Holder() {
    const std::string name = "@arraybridge-holder-" + std::to_string(::getpid());
    const auto address = ManagerAddress(name);
    socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    AB_CHECK(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->size) == 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    ::setenv("FDSTORE", "8192", 1);
    ::unsetenv("KEEPER_PID");
  }
  void WakeUp() {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) ReadWithin(10);
    });
  }
  void FallAsleep() { thread_ = {}; }
  void Close() {
    FallAsleep();
    socket_.reset();
  }

  // The texts of the datagrams, except for barriers.
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  std::vector<ino_t> inodes() const {
    const std::lock_guard lock(mutex_);
    return inodes_;
  }

 private:
  void ReadWithin(int timeout_ms) {
    pollfd readable{socket_.get(), POLLIN, 0};
    if (::poll(&readable, 1, timeout_ms) != 1) return;
    std::array<char, 512> text{};
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = ::recvmsg(socket_.get(), &message, 0);
    ASSERT_GE(size, 0);
    UniqueFd came;  // closed at the end, which answers a barrier
    if (const cmsghdr* const rights = CMSG_FIRSTHDR(&message); rights != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      came.reset(fd);
    }
    const std::lock_guard lock(mutex_);
    const std::string got(text.data(), static_cast<size_t>(size));
    if (got == "BARRIER=1") return;
    texts_.push_back(got);
    struct stat found {};
    if (came.valid() && ::fstat(came.get(), &found) == 0) inodes_.push_back(found.st_ino);
  }

  UniqueFd socket_;
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
  std::vector<ino_t> inodes_;
  std::jthread thread_;
};

class ManagerStoreTest : public ::testing::Test {
 protected:
  static ino_t InodeOf(int fd) {
    struct stat found {};
    EXPECT_EQ(::fstat(fd, &found), 0);
    return found.st_ino;
  }
  Status StoreOne(ManagerStore& store, std::string_view name) const {
    const DescriptorStore::Entry entry{name, memory_.get()};
    return store.Store({&entry, 1});
  }

  Holder holder_;
  UniqueFd memory_{::memfd_create("test", MFD_CLOEXEC)};
};

TEST_F(ManagerStoreTest, ThereIsNoneUnlessTheHolderSaysThatItKeepsDescriptors) {
  for (const char* const said : {"0", "-1", "yes", ""}) {
    ::setenv("FDSTORE", said, 1);
    EXPECT_EQ(ManagerStore::FromEnvironment({}), nullptr) << said;
  }
  ::unsetenv("FDSTORE");
  EXPECT_EQ(ManagerStore::FromEnvironment({}), nullptr);
  ::setenv("FDSTORE", "8192", 1);
  EXPECT_NE(ManagerStore::FromEnvironment({}), nullptr);
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(ManagerStore::FromEnvironment({}), nullptr);
}

TEST_F(ManagerStoreTest, ReturnsAfterTheHolderHasReceivedAll) {
  holder_.WakeUp();
  const auto store = ManagerStore::FromEnvironment({});
  const UniqueFd other(::memfd_create("other", MFD_CLOEXEC));
  const std::vector<DescriptorStore::Entry> entries{
      {"a1f", memory_.get()}, {"l2", other.get()}, {"lifeline.1a.2", memory_.get()}, {"a1f", other.get()}};
  const Status stored = store->Store(entries);
  ASSERT_TRUE(stored.ok()) << stored.ToString();
  // Only a lifeline is dropped on hang-up; a listening socket is none.
  EXPECT_THAT(holder_.texts(),
              ElementsAre("FDSTORE=1\nFDNAME=a1f\nFDPOLL=0", "FDSTORE=1\nFDNAME=l2",
                          "FDSTORE=1\nFDNAME=lifeline.1a.2\nFDPOLL=0", "FDSTORE=1\nFDNAME=a1f\nFDPOLL=0"));
  const ino_t first = InodeOf(memory_.get());
  const ino_t second = InodeOf(other.get());
  EXPECT_THAT(holder_.inodes(), ElementsAre(first, second, first, second));
  EXPECT_EQ(store->usage().entries, 4u);
  EXPECT_EQ(store->usage().name_bytes, 4 + 3 + 14 + 4u);
}

TEST_F(ManagerStoreTest, RemovesAllEntriesOfAName) {
  holder_.WakeUp();
  const auto store = ManagerStore::FromEnvironment({"a1", "c0", "a1"});
  EXPECT_EQ(store->usage().entries, 3u);
  store->Remove("a1");
  store->Remove("a1");  // there is none any more
  store->Remove("a2");
  ASSERT_TRUE(store->Store({}).ok());
  EXPECT_THAT(holder_.texts(), ElementsAre("FDSTOREREMOVE=1\nFDNAME=a1"));
  EXPECT_EQ(store->usage().entries, 1u);
  EXPECT_EQ(store->usage().name_bytes, 3u);
}

TEST_F(ManagerStoreTest, MoreEntriesThanTheHolderTakesAreRefusedAndNothingIsStored) {
  holder_.WakeUp();
  ::setenv("FDSTORE", "3", 1);
  const auto store = ManagerStore::FromEnvironment({"lifeline", "a1"});
  EXPECT_EQ(store->usage().entries_max, 3u);
  const std::vector<DescriptorStore::Entry> two{{"a2", memory_.get()}, {"a3", memory_.get()}};
  const Status refused = store->Store(two);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.reason(), "STORE_FULL");
  EXPECT_THAT(refused.message(), HasSubstr("2 of 3 entries"));
  ASSERT_TRUE(store->Store({}).ok());
  EXPECT_TRUE(holder_.texts().empty());
  EXPECT_EQ(store->usage().refused_total, 1u);
  store->Remove("a1");
  EXPECT_TRUE(store->Store(two).ok());
}

TEST_F(ManagerStoreTest, NoMoreEntriesThanOneExecCanReceive) {
  ::setenv("FDSTORE", "1000000", 1);
  EXPECT_EQ(ManagerStore::FromEnvironment({})->usage().entries_max, ManagerStore::kEntriesMax);
}

TEST_F(ManagerStoreTest, NamesThatOneVariableCannotHoldAreRefused) {
  holder_.WakeUp();
  const std::string longest = "a" + std::string(DescriptorStore::kEntryNameBytesMax - 1, '0');
  const size_t fitting = ManagerStore::kNameBytesMax / (longest.size() + 1);
  const auto store = ManagerStore::FromEnvironment(std::vector<std::string>(fitting - 1, longest));
  EXPECT_TRUE(StoreOne(*store, longest).ok());
  EXPECT_EQ(store->usage().name_bytes, ManagerStore::kNameBytesMax);
  EXPECT_LT(store->usage().entries, store->usage().entries_max);
  EXPECT_EQ(StoreOne(*store, "a1").reason(), "STORE_FULL");
}

TEST_F(ManagerStoreTest, ARemovalDoesNotWaitForAHolderThatDoesNotRead) {
  std::vector<std::string> received;
  for (int i = 0; i < 2000; ++i) received.push_back(Concat("a", i));  // more than a queue holds
  const auto store = ManagerStore::FromEnvironment(received);
  for (const std::string& name : received) store->Remove(name);
  const uint64_t waiting = store->usage().entries;
  EXPECT_GT(waiting, 0u);  // the holder has them: there is no room for others
  holder_.WakeUp();
  EXPECT_TRUE(StoreOne(*store, "a7").ok());
  const auto texts = holder_.texts();
  ASSERT_EQ(texts.size(), received.size() + 1);
  EXPECT_EQ(texts.back(), "FDSTORE=1\nFDNAME=a7\nFDPOLL=0");  // not before the removal of the same name
  EXPECT_EQ(store->usage().entries, 1u);
}

TEST_F(ManagerStoreTest, AHolderThatDoesNotReadIsReported) {
  const auto store = ManagerStore::FromEnvironment({});
  const Status late = StoreOne(*store, "a1");
  EXPECT_EQ(late.code(), Code::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr("5 s"));
  EXPECT_EQ(store->usage().entries, 1u);  // it may be stored
}

TEST_F(ManagerStoreTest, AHolderThatHasGoneIsReported) {
  const auto store = ManagerStore::FromEnvironment({});
  holder_.Close();
  EXPECT_EQ(StoreOne(*store, "a1").code(), Code::kUnavailable);
}

TEST_F(ManagerStoreTest, AKeeperIsTheParentAndEndsWithADaemonThatReturnsZero) {
  ::setenv("KEEPER_PID", std::to_string(::getppid()).c_str(), 1);
  const auto kept = ManagerStore::FromEnvironment({});
  ASSERT_GE(kept->keeper(), 0);
  EXPECT_FALSE(kept->KeepsAfter(0));
  EXPECT_TRUE(kept->KeepsAfter(ManagerStore::kExitStartAnew));
  kept->KeeperEnded();
  EXPECT_FALSE(kept->KeepsAfter(ManagerStore::kExitStartAnew));
  EXPECT_TRUE(kept->usage().holder_has_ended);
  EXPECT_THAT(StoreOne(*kept, "a1").message(), HasSubstr("has ended"));
}

TEST_F(ManagerStoreTest, AManagerMayKeepDescriptorsAfterEveryEnd) {
  ::setenv("KEEPER_PID", "1000000", 1);  // of a keeper further up
  const auto store = ManagerStore::FromEnvironment({});
  EXPECT_EQ(store->keeper(), -1);
  EXPECT_TRUE(store->KeepsAfter(0));
}

using ManagerStoreDeathTest = ManagerStoreTest;

TEST_F(ManagerStoreTest, OnlyAKeeperSaysWhyTheLastDaemonEnded) {
  ::setenv("KEEPER_LAST_END", "signal 9", 1);
  const auto of_manager = ManagerStore::FromEnvironment({});
  EXPECT_EQ(of_manager->usage().holder, DescriptorStore::Holder::kServiceManager);
  EXPECT_EQ(of_manager->LastEnd(), "unknown (service manager)");
  ::setenv("KEEPER_PID", std::to_string(::getppid()).c_str(), 1);
  const auto of_keeper = ManagerStore::FromEnvironment({});
  EXPECT_EQ(of_keeper->usage().holder, DescriptorStore::Holder::kKeeper);
  EXPECT_EQ(of_keeper->LastEnd(), "signal 9");
  ::setenv("KEEPER_LAST_END", std::string(1000, 'x').c_str(), 1);
  EXPECT_EQ(of_keeper->LastEnd().size(), 64u);
  ::unsetenv("KEEPER_LAST_END");
  EXPECT_EQ(of_keeper->LastEnd(), "unknown");
  ::unsetenv("KEEPER_PID");
}

TEST_F(ManagerStoreDeathTest, ANameThatNoHolderTakesIsADefectOfOurs) {
  const auto store = ManagerStore::FromEnvironment({});
  for (const std::string& name : {std::string(), std::string(32, 'a'), std::string("a:1"), std::string("a\n1")}) {
    EXPECT_DEATH(static_cast<void>(StoreOne(*store, name)), "IsEntryName");
  }
}

}  // namespace
}  // namespace arraybridge::daemon

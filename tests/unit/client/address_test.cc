// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/address.h>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

namespace fs = std::filesystem;

class AddressTest : public ::testing::Test {
 protected:
  AddressTest() {
    std::string pattern = ::testing::TempDir() + "/abXXXXXX";
    root_ = ::mkdtemp(pattern.data());
    for (const char* each : {"ARRAYBRIDGE_ADDRESS", "XDG_RUNTIME_DIR", "NVIDIA_DRA_LOCAL_IPC_DIR"}) ::unsetenv(each);
    ::setenv("TMPDIR", root_.c_str(), 1);
  }
  ~AddressTest() override {
    ::unsetenv("TMPDIR");
    fs::remove_all(root_);
  }
  // A directory in which something listens.
  std::string Broker(const std::string& name, mode_t mode = 0700) {
    const std::string directory = root_ + "/" + name;
    fs::create_directories(directory);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    (directory + "/lifeline.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    listens_.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listens_.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listens_.back().get(), 0), 0);
    EXPECT_EQ(::chmod(directory.c_str(), mode), 0);
    return directory;
  }
  // As if the one in the latest directory had been killed.
  void Kill() { listens_.pop_back(); }

  std::string root_;
  std::vector<UniqueFd> listens_;
};

TEST_F(AddressTest, TheFirstThatHasASocketIsFound) {
  if (fs::exists("/run/arraybridge/lifeline.sock")) GTEST_SKIP() << "this host has a system daemon";
  EXPECT_EQ(FindAddress(), "/run/arraybridge") << "there is none";
  ::setenv("NVIDIA_DRA_LOCAL_IPC_DIR", root_.c_str(), 1);
  EXPECT_EQ(FindAddress(), "/run/arraybridge") << "the directory has no socket";
  const std::string shared = Broker("arraybridge");
  EXPECT_EQ(FindAddress(), shared);
  const std::string temporary = Broker("arraybridge-" + std::to_string(::getuid()));
  EXPECT_EQ(FindAddress(), temporary);
  ::setenv("XDG_RUNTIME_DIR", (root_ + "/user").c_str(), 1);
  EXPECT_EQ(FindAddress(), shared) << "the user's directory is that one, and has no socket";
  const std::string own = Broker("user/arraybridge");
  EXPECT_EQ(FindAddress(), own);
  EXPECT_EQ(FindAddress("admin.sock"), "/run/arraybridge");
  ::setenv("ARRAYBRIDGE_ADDRESS", "/anything", 1);
  EXPECT_EQ(FindAddress(), "/anything") << "a named address is not checked";
}

TEST_F(AddressTest, ASocketAtWhichNobodyListensHidesNoOtherBroker) {
  if (fs::exists("/run/arraybridge/lifeline.sock")) GTEST_SKIP() << "this host has a system daemon";
  const std::string shared = Broker("arraybridge");
  const std::string own = Broker("arraybridge-" + std::to_string(::getuid()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(FindAddress(), own) << "also when its queue is full";
  Kill();
  EXPECT_EQ(FindAddress(), own) << "there is no other one";
  ::setenv("NVIDIA_DRA_LOCAL_IPC_DIR", root_.c_str(), 1);
  EXPECT_EQ(FindAddress(), shared);
}

TEST_F(AddressTest, ADirectoryThatOthersCanWriteIsNotTheUsersOwn) {
  ::setenv("XDG_RUNTIME_DIR", (root_ + "/user").c_str(), 1);
  const std::string own = Broker("user/arraybridge", 0777);
  EXPECT_NE(FindAddress(), own);
  ASSERT_EQ(::chmod(own.c_str(), 0755), 0);
  EXPECT_EQ(FindAddress(), own);
  ::setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_NE(FindAddress(), own);
}

}  // namespace
}  // namespace arraybridge

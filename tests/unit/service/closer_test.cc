// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/closer.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace arraybridge::daemon {
namespace {

size_t Closers() {
  size_t found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "ab-closer") ++found;
  }
  return found;
}

// A TCP connection whose close() blocks until the peer closes: it lingers, and the peer reads nothing.
struct SlowToClose {
  UniqueFd peer;
  UniqueFd file;
};

SlowToClose MakeSlowToClose() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const UniqueFd listening(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::bind(listening.get(), any, size), 0);
  EXPECT_EQ(::listen(listening.get(), 1), 0);
  EXPECT_EQ(::getsockname(listening.get(), any, &size), 0);
  UniqueFd file(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(file.get(), any, size), 0);
  UniqueFd peer(::accept(listening.get(), nullptr, nullptr));
  const linger minutes{.l_onoff = 1, .l_linger = 600};
  EXPECT_EQ(::setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &minutes, sizeof(minutes)), 0);
  const std::vector<char> unread(1 << 20);
  while (::send(file.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
  }
  return {std::move(peer), std::move(file)};
}

TEST(CloserTest, ThreadsThatSlowDescriptorsStartedEndWhenTheseAreClosed) {
  std::vector<UniqueFd> peers;
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 8; ++i) {
    auto made = MakeSlowToClose();
    peers.push_back(std::move(made.peer));
    slow.push_back(std::move(made.file));
  }
  for (UniqueFd& file : slow) CloseAside(std::move(file));
  while (Closers() < 8) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // no close waits for another
  peers.clear();
  while (Closers() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace
}  // namespace arraybridge::daemon

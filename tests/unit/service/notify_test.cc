// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

// Binds a service manager's socket; `name` begins with / or @.
UniqueFd Manager(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  return socket;
}

std::string Received(const UniqueFd& socket) {
  char text[64];
  const ssize_t size = ::recv(socket.get(), text, sizeof text, MSG_DONTWAIT);
  return size < 0 ? "nothing" : std::string(text, static_cast<size_t>(size));
}

TEST(NotifyTest, ReachesAManagerByPathAndByAbstractName) {
  const std::string path = ::testing::TempDir() + "notify" + std::to_string(::getpid());
  for (const std::string& name : {path, "@arraybridge-test-" + std::to_string(::getpid())}) {
    const UniqueFd manager = Manager(name);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    NotifyManager("READY=1");
    EXPECT_EQ(Received(manager), "READY=1") << name;
  }
  ::unlink(path.c_str());
}

TEST(NotifyTest, ReachesAKeeperByThePassedDescriptor) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd keeper(pair[0]), passed(pair[1]);
  ::setenv("NOTIFY_SOCKET", ("fd:" + std::to_string(passed.get())).c_str(), 1);
  for (int i = 0; i < 2; ++i) {
    NotifyManager("READY=1");
    EXPECT_EQ(Received(keeper), "READY=1");
  }
}

TEST(NotifyTest, WithoutAManagerOrWithNonsenseNothingHappens) {
  ::unsetenv("NOTIFY_SOCKET");
  NotifyManager("READY=1");
  for (const std::string& nonsense :
       {std::string(), std::string("vsock:2"), std::string("fd:"), std::string("fd:-1"), std::string(500, '/')}) {
    ::setenv("NOTIFY_SOCKET", nonsense.c_str(), 1);
    NotifyManager("READY=1");
  }
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace arraybridge::daemon

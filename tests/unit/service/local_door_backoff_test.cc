// SPDX-License-Identifier: Apache-2.0
// A LocalDoor whose sockets are writable but accept nothing, as if the kernel had no memory for a message. This
// program's send and sendmsg replace those of the C library.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/unit/service/local_door_fixture.h"

namespace {

std::atomic<bool> g_no_buffers{false};
std::atomic<int> g_client{-1};  // whose sends always work
std::atomic<int> g_refused{0};

bool Refuses(int socket) {
  if (!g_no_buffers || socket == g_client) return false;
  ++g_refused;
  errno = ENOBUFS;
  return true;
}

}  // namespace

extern "C" ssize_t send(int socket, const void* bytes, size_t size, int flags) {
  if (Refuses(socket)) return -1;
  return ::syscall(SYS_sendto, socket, bytes, size, flags, nullptr, 0);
}

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  if (Refuses(socket)) return -1;
  return ::syscall(SYS_sendmsg, socket, message, flags);
}

namespace arraybridge::daemon {
namespace {

TEST_F(LocalDoorTest, ASocketThatTakesNothingIsTriedLessAndLessOften) {
  LifelineClient client = Greeted();
  LifelineClient other = Greeted();
  g_client = client.fd();
  g_no_buffers = true;
  ASSERT_EQ(client.Send(Verb::kGetStats, ""), SendOutcome::kSent);
  // Waits while the loop would spin: without a pause it retries some ten thousand times a second.
  constexpr std::chrono::milliseconds kSpell{500};
  const auto begun = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(kSpell);
  while (g_refused < 2 && std::chrono::steady_clock::now() < begun + 120 * kSpell) std::this_thread::yield();
  const int refused = g_refused;
  const auto spells = (std::chrono::steady_clock::now() - begun) / kSpell;  // more than one if the machine stalls
  g_no_buffers = false;
  EXPECT_GE(refused, 2) << "the loop retries";
  EXPECT_LE(refused, 32 * spells);
  EXPECT_EQ(client.Receive().code(), Code::kOk) << "the owed frame arrives";
  EXPECT_EQ(Stats(other).sessions(), 2u);
}

}  // namespace
}  // namespace arraybridge::daemon

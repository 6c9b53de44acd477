// SPDX-License-Identifier: Apache-2.0
// The floor of every round trip: accepts connections and answers each datagram with as many bytes as its first four
// request. Blocking recv and send, one process per connection: the cheapest way on this kind of socket.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "tests/bench/support.h"

namespace {

using arraybridge::bench::Arguments;
using arraybridge::bench::Fail;

[[noreturn]] void Serve(int connection) {
  static char buffer[65536];
  while (::recv(connection, buffer, sizeof buffer, 0) > 0) {
    uint32_t size = 0;
    std::memcpy(&size, buffer, sizeof size);
    if (::send(connection, buffer, std::min<size_t>(size, sizeof buffer), MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv);
  const std::string path = arguments.Text("socket");
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) Fail("socket path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 64) != 0) {
    Fail("cannot listen");
  }
  std::signal(SIGCHLD, SIG_IGN);
  if (::write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
  for (;;) {
    const int connection = ::accept(listener, nullptr, nullptr);
    if (connection < 0) return 1;
    if (::fork() == 0) Serve(connection);
    ::close(connection);
  }
}

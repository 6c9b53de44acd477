// SPDX-License-Identifier: Apache-2.0
// libstdc++'s std::random_device calls arc4random, and libevent calls arc4random_buf. glibc has them only since 2.36;
// with these definitions the daemon also starts on glibc 2.34.
#include <sys/random.h>

#include <cstddef>
#include <cstdint>

extern "C" void arc4random_buf(void* place, std::size_t size) noexcept {
  auto* bytes = static_cast<unsigned char*>(place);
  while (size > 0) {
    const ssize_t got = ::getrandom(bytes, size, 0);
    if (got < 0) continue;  // interrupted by a signal
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
}

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  arc4random_buf(&number, sizeof number);
  return number;
}

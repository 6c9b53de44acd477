// libstdc++'s std::random_device calls arc4random, and libevent arc4random_buf, which glibc has only since 2.36. With
// these the daemon starts where glibc is 2.34.
#include <sys/random.h>

#include <cstddef>
#include <cstdint>

extern "C" void arc4random_buf(void* place, std::size_t size) noexcept {
  auto* bytes = static_cast<unsigned char*>(place);
  while (size > 0) {
    const ssize_t got = ::getrandom(bytes, size, 0);
    if (got < 0) continue;  // a signal came
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
}

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  arc4random_buf(&number, sizeof number);
  return number;
}

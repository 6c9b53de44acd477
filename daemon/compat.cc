// libstdc++'s std::random_device calls arc4random, which glibc has only since 2.36. With this one the daemon starts
// where glibc is 2.34.
#include <sys/random.h>

#include <cstdint>

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) continue;
  return number;
}

// A failpoint is a named place where a test may kill the process, make a step fail, or skip a safeguard to verify that
// a test notices (tests/integration/cuda_safeguards_test.cc). It exists only in builds with ARRAYBRIDGE_FAILPOINTS (the
// dev and sanitizer presets); elsewhere it is an empty inline function. The environment variable
// ARRAYBRIDGE_FAILPOINT="name:abort", "name:kill" or "name:error" arms one; "name:kill_once=N:FILE" kills the process
// the N-th time that it passes, and creates the file; a process that finds the file is not killed.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace arraybridge {

// True: the caller must fail as it would on a real failure, or continue without the safeguard.
inline bool Failpoint([[maybe_unused]] std::string_view name) {
#if defined(ARRAYBRIDGE_FAILPOINTS)
  const char* armed = std::getenv("ARRAYBRIDGE_FAILPOINT");
  if (armed == nullptr) return false;
  const std::string_view text(armed);
  const size_t colon = text.find(':');
  if (text.substr(0, colon) != name || colon == std::string_view::npos) return false;
  const std::string_view action = text.substr(colon + 1);
  if (action == "abort") std::abort();
  if (action == "kill") std::raise(SIGKILL);
  constexpr std::string_view kOnce = "kill_once=";
  if (action.substr(0, kOnce.size()) == kOnce) {
    static std::atomic<int> passed{0};
    const char* const number = action.data() + kOnce.size();
    char* file = nullptr;
    if (++passed < std::strtol(number, &file, 10) || *file != ':') return false;
    const int made = ::open(file + 1, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made >= 0) std::raise(SIGKILL);
    return false;
  }
  return action == "error";
#else
  return false;
#endif
}

}  // namespace arraybridge

// A failpoint is a named place where a test may kill the process, make a step fail, or skip a safeguard to verify that
// a test notices (tests/integration/cuda_safeguards_test.cc). It exists only in builds with ARRAYBRIDGE_FAILPOINTS (the
// dev and sanitizer presets); elsewhere it is an empty inline function. The environment variable
// ARRAYBRIDGE_FAILPOINT="name:abort", "name:kill" or "name:error" arms one.
#pragma once

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
  return action == "error";
#else
  return false;
#endif
}

}  // namespace arraybridge

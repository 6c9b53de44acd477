// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/failpoint.h"

#include <fcntl.h>

#include <atomic>
#include <csignal>
#include <cstdlib>

namespace arraybridge {

#if defined(ARRAYBRIDGE_FAILPOINTS)
const bool kFailpointsWork = true;

bool IsArmed(std::string_view name) {
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
}
#else
const bool kFailpointsWork = false;

bool IsArmed(std::string_view /*name*/) { return false; }
#endif

}  // namespace arraybridge

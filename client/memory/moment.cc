#include "client/memory/moment.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace arraybridge {
namespace {

constexpr std::chrono::microseconds kStepMin{20};
constexpr std::chrono::microseconds kStepMax{1000};

}  // namespace

Status WaitFor(Moment& moment) {
  for (auto step = kStepMin;; step = std::min(2 * step, kStepMax)) {
    const auto state = moment.Look();
    if (!state.ok()) return state.status();
    if (*state == Moment::State::kPassed) return Ok();
    if (*state == Moment::State::kHeldUp) {
      return Unavailable("a graph is being captured: what was queued on the device cannot be asked for until it ends");
    }
    std::this_thread::sleep_for(step);
  }
}

}  // namespace arraybridge

#include "client/session_release.h"

#include <algorithm>

namespace arraybridge {

Moment::State SessionRelease::LookAtDevice() {
  if (moment_ == nullptr) {
    moment_ = Waited().Now();
    if (moment_ == nullptr) return Moment::State::kPassed;
    // One question serves all that joined the moment before it is asked.
    return Moment::State::kPending;
  }
  const auto state = moment_->Look();
  // An error that ends all work on a device ends this work, too.
  undrained_ = !state.ok() && state.status().code() != Code::kAborted;
  return state.ok() ? *state : Moment::State::kPassed;
}

void ReclaimSessionReleases(Reclaimer::Batch batch) {
  // Mostly there is one session.
  std::sort(batch.begin(), batch.end(), [](const auto& one, const auto& other) {
    return static_cast<SessionRelease&>(*one).releases < static_cast<SessionRelease&>(*other).releases;
  });
  for (auto next = batch.begin(); next != batch.end();) {
    const std::shared_ptr<ReleaseQueue> releases = static_cast<SessionRelease&>(**next).releases;
    codec::Release release;
    for (; next != batch.end() && static_cast<SessionRelease&>(**next).releases == releases; ++next) {
      static_cast<SessionRelease&>(**next).GiveBack(release);
      next->reset();
    }
    releases->Post(std::move(release));
  }
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/session_release.h"

#include <algorithm>

namespace arraybridge {

DeviceEvent::State SessionRelease::PollDevice() {
  if (event_ == nullptr) {
    event_ = Waited().Now();
    if (event_ == nullptr) return DeviceEvent::State::kPassed;
    // The first poll only joins the event, so that one query serves all objects that joined it.
    return DeviceEvent::State::kPending;
  }
  const auto state = event_->Poll();
  // ABORTED means that the device does no more work, so this work has ended as well.
  undrained_ = !state.ok() && state.status().code() != Code::kAborted;
  return state.ok() ? *state : DeviceEvent::State::kPassed;
}

void ReclaimSessionReleases(Reclaimer::Batch batch) {
  // Usually there is only one session.
  std::sort(batch.begin(), batch.end(), [](const auto& one, const auto& other) {
    return static_cast<SessionRelease&>(*one).releases < static_cast<SessionRelease&>(*other).releases;
  });
  for (auto next = batch.begin(); next != batch.end();) {
    const std::shared_ptr<ReleaseQueue> releases = static_cast<SessionRelease&>(**next).releases;
    codec::Release release;
    const auto most = static_cast<size_t>(batch.end() - next);
    release.leases.reserve(most);  // before the first of them is given back
    release.unmapped.reserve(most);
    for (; next != batch.end() && static_cast<SessionRelease&>(**next).releases == releases; ++next) {
      static_cast<SessionRelease&>(**next).ReleaseInto(release);
      next->reset();
    }
    releases->Post(std::move(release));
  }
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reclaim/reclaimer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace arraybridge::daemon {
namespace {

constexpr std::chrono::milliseconds kServeLaterPause{100};

}  // namespace

Reclaimer::Reclaimer(Broker& broker, WaitingLine& line, SessionCuts& cuts)
    : broker_(broker),
      line_(line),
      cuts_(cuts),
      sweeper_(
          broker, slow_, heap_,
          [this] {
            ServeMemory(Lane::kShort);
            if (line_.waits_for_memory()) ServeMemorySoon(Lane::kLong);
          },
          [this](Sweeper::Look look) { return PollHazards(look); }),
      large_("ab-large"),
      slow_("ab-slow") {}

void Reclaimer::Reclaim() {
  sweeper_.WatchHazards();
  if (broker_.sweep_wanted() || line_.waits_for_memory()) sweeper_.Soon();
}

bool Reclaimer::PollHazards(Sweeper::Look look) {
  if (!broker_.hazards_waiting()) return false;
  const Broker::Looked looked = look == Sweeper::Look::kAll ? broker_.PollHazards() : broker_.LookOn();
  if (looked.freed > 0) Reclaim();
  for (const SessionId session : looked.over_limit) {
    cuts_.Cut(session, "holds withdrawn bytes beyond limits.pinned_bytes_per_session");
  }
  return looked.more;
}

void Reclaimer::Trim(std::optional<Device> only, std::function<void(Result<uint64_t> freed_bytes)> done) {
  slow_.Post([this, only = std::move(only), done = std::move(done)] {
    const uint64_t swept = only ? 0 : sweeper_.SweepNow().freed_bytes;
    const auto cached = broker_.Trim(only);
    // swept memory may be in the cache now; count it once
    done(cached.ok() ? Result<uint64_t>(std::max(swept, *cached)) : cached);
    sweeper_.Soon();
  });
}

void Reclaimer::ServeMemory(Lane lane) {
  if (line_.ServeMemory(lane)) ServeMemorySoon(Other(lane));
}

void Reclaimer::ServeMemorySoon(Lane lane) {
  std::atomic<bool>& posted = serve_posted_[static_cast<size_t>(lane)];
  if (posted.exchange(true)) return;
  WorkerOf(lane).Post([this, lane, &posted] {
    posted.store(false);
    ServeMemory(lane);
  });
}

void Reclaimer::ServeMemoryLater(Lane lane) {
  std::atomic<bool>& posted = look_posted_[static_cast<size_t>(lane)];
  if (posted.exchange(true)) return;
  WorkerOf(lane).PostAt(Clock::now() + kServeLaterPause, [this, lane, &posted] {
    posted.store(false);
    ServeMemory(lane);
  });
}

void Reclaimer::WaitIdle(Clock::time_point deadline) {
  for (int turn = 0; turn < 2; ++turn) {  // each may have posted a task to the other
    slow_.WaitIdle(deadline);
    large_.WaitIdle(deadline);
  }
  slow_.WaitIdle(deadline);
}

}  // namespace arraybridge::daemon

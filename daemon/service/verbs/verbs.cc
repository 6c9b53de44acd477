// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/verbs.h"

#include <utility>

namespace arraybridge {

Verbs::Verbs(const Config& config, Broker& broker, std::function<void()> allocated, NoGpu no_gpu, Life life)
    : admission_(config, broker),
      line_(config.limits),
      counts_(broker),
      reclaimer_(broker, line_, cuts_),
      handover_(config, broker, line_, reclaimer_),
      publishes(config, broker, admission_, line_, reclaimer_, handover_, counts_, cuts_),
      shares(config, broker, here_, admission_, line_, reclaimer_, handover_, publishes, channels),
      channels(config, broker, admission_, line_, reclaimer_, handover_, counts_),
      arenas(config, broker, admission_, line_, reclaimer_, handover_, channels, std::move(allocated)),
      lists(config, broker, here_, std::move(no_gpu), std::move(life), admission_, line_, publishes, counts_),
      watches(config, broker, admission_, line_),
      sessions(config, broker, here_, admission_, line_, reclaimer_, publishes, channels, lists, counts_, cuts_) {}

// The two threads for memory post tasks to each other, and the thread for seals posts to the slow one.
Verbs::~Verbs() {
  watches.Stop();
  reclaimer_.StopLarge();
  publishes.Stop();
  reclaimer_.StopSlow();
  line_.Stop();
}

void Verbs::Drain() {
  admission_.Drain();
  line_.ExpireAll();
  publishes.ExpireAll();
}

void Verbs::WaitIdle(Clock::time_point deadline) {
  publishes.WaitIdle(deadline);
  reclaimer_.WaitIdle(deadline);
}

}  // namespace arraybridge

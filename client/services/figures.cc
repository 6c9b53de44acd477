// SPDX-License-Identifier: Apache-2.0
#include "client/services/figures.h"

#include <algorithm>
#include <vector>

#include "client/services/mailbox.h"
#include "proto/boundary/boot_time.h"

namespace arraybridge::services {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kEvery{1000};
constexpr milliseconds kLifetime{10000};  // of what a server has published that answers no more, or was killed
constexpr size_t kTimes = 512;            // the last answers, of which the percentiles are

}  // namespace

Figures::Figures(Broker& broker, const std::string& service, const std::string& server)
    : broker_(broker), share_(ChannelOf(service, "figures", server)) {}

void Figures::Note(uint64_t called_ns, bool failed) {
  std::string text;
  {
    const MutexLock lock(mutex_);
    ++requests_;
    if (failed) ++failed_;
    times_us_.push_back((BootTime() - called_ns) / 1000);
    if (times_us_.size() > kTimes) times_us_.pop_front();
    const Time now = steady_clock::now();
    if (now - published_at_ < kEvery) return;
    text = TextAt(now);
  }
  const Broker::PublishOptions options{
      .name = share_, .replace = true, .structure = std::string(kNoTree), .metadata = text, .lifetime = kLifetime};
  const auto placed = broker_.Place({&Nothing(), 1}, {.publish = options, .timeout = milliseconds(0)});
  if (placed.ok()) static_cast<void>(broker_.Publish(*placed, options));
}

void Figures::Withdraw() {
  {
    const MutexLock lock(mutex_);
    if (published_at_ == Time()) return;
  }
  static_cast<void>(broker_.Withdraw({.name = share_}));
}

std::string Figures::TextAt(Time now) {
  const milliseconds since = std::chrono::duration_cast<milliseconds>(now - published_at_);
  const milliseconds passed = published_at_ == Time() ? kEvery : std::min(since, kLifetime);
  const uint64_t rate_milli = 1000 * 1000 * (requests_ - published_requests_) / static_cast<uint64_t>(passed.count());
  published_at_ = now;
  published_requests_ = requests_;
  std::vector<uint64_t> times(times_us_.begin(), times_us_.end());
  std::ranges::sort(times);
  return Concat("requests=", requests_, " failed=", failed_, " rate_milli=", rate_milli,
                " p50_us=", times[times.size() / 2], " p99_us=", times[times.size() * 99 / 100]);
}

}  // namespace arraybridge::services

// SPDX-License-Identifier: Apache-2.0
// Figures are what one server of a service publishes of its work: the metadata of a small share, at most once in a
// second. The daemon knows who waits for a service, and for how long; only the servers know how long their answers
// took. The text is that of python/arraybridge/broker/figures.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include <arraybridge/broker.h>

#include "proto/boundary/mutex.h"

namespace arraybridge::services {

// Thread-safe.
class Figures {
 public:
  Figures(Broker& broker, const std::string& service, const std::string& server);

  // A request was answered that was called at this time of CLOCK_BOOTTIME. Waits for no room: nothing depends on it.
  void Note(uint64_t called_ns, bool failed) AB_EXCLUDES(mutex_);
  // The server has ended.
  void Withdraw() AB_EXCLUDES(mutex_);

 private:
  using Time = std::chrono::steady_clock::time_point;
  std::string TextAt(Time now) AB_REQUIRES(mutex_);

  Broker& broker_;
  const std::string share_;
  Mutex mutex_;
  std::deque<uint64_t> times_us_ AB_GUARDED_BY(mutex_);  // of the last answers
  uint64_t requests_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t failed_ AB_GUARDED_BY(mutex_) = 0;
  Time published_at_ AB_GUARDED_BY(mutex_){};
  uint64_t published_requests_ AB_GUARDED_BY(mutex_) = 0;
};

}  // namespace arraybridge::services

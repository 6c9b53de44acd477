// SPDX-License-Identifier: Apache-2.0
// A ForceExitOnSignal makes a second SIGTERM or SIGINT end the process at once. Signals within 200 ms of its
// construction are treated as repetitions of the first one: timeout(1) signals the process and then the group of the
// process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

namespace arraybridge::daemon {

// REQUIRES: both signals are blocked in all threads, and no other thread takes them.
class ForceExitOnSignal {
 public:
  ForceExitOnSignal() {
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
    } catch (const std::system_error&) {  // without room for a thread a second signal waits as the first one does
    }
  }

 private:
  static constexpr auto kTogether = std::chrono::milliseconds(200);
  static constexpr timespec kStep{0, 10'000'000};

  void Run(const std::stop_token& stop) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    const auto until = std::chrono::steady_clock::now() + kTogether;
    while (!stop.stop_requested() && std::chrono::steady_clock::now() < until) ::sigtimedwait(&ends, nullptr, &kStep);
    if (stop.stop_requested()) return;
    ::pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);  // one thread that receives them is enough
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, stop, [] { return false; });
  }

  std::jthread thread_;
};

}  // namespace arraybridge::daemon

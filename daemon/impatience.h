// From a moment after it was made, and as long as it lives, a SIGTERM or SIGINT ends the process at once: who asks
// twice waits no longer. Those that come within the moment are the first one once more: timeout(1) sends its own to the
// process, and then to the group that the process is in.
#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <stop_token>
#include <thread>

namespace arraybridge {

// REQUIRES: both signals are blocked in all threads, and nobody else takes them any more.
class Impatience {
 public:
  Impatience() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}

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
    ::pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);  // of this thread: the process has one that takes them
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, stop, [] { return false; });
  }

  std::jthread thread_;
};

}  // namespace arraybridge

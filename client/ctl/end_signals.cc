// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/end_signals.h"

namespace arraybridge::ctl {
namespace {

constexpr int kEndSignals[] = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : kEndSignals) {
    struct sigaction now {};
    if (::sigaction(each, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&signals, each);
  }
  return signals;
}

EndLater::EndLater() { ::pthread_sigmask(SIG_BLOCK, &signals_, &before_); }

EndLater::~EndLater() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool EndLater::requested() const {
  sigset_t pending;
  if (::sigpending(&pending) != 0) return false;
  for (const int each : kEndSignals) {
    if (sigismember(&signals_, each) == 1 && sigismember(&pending, each) == 1) return true;
  }
  return false;
}

}  // namespace arraybridge::ctl

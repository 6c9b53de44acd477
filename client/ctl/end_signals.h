// SPDX-License-Identifier: Apache-2.0
// The signals with which a user ends a command. A command blocks them for the moments in which it must not be killed;
// blocked signals are delivered when they are unblocked.
#pragma once

#include <csignal>

namespace arraybridge::ctl {

// Without the signals that the parent process ignores, as nohup does: a signal that is blocked is delivered even if it
// is ignored.
sigset_t EndSignals();

// Blocks the signals while it lives; its destructor lets pending ones end the command. Applies to one thread: new
// threads inherit the mask, and the threads of the client library take no signals.
class EndLater {
 public:
  EndLater();
  ~EndLater();
  EndLater(const EndLater&) = delete;
  EndLater& operator=(const EndLater&) = delete;

  // True if a signal is pending: stop the work.
  bool requested() const;

 private:
  const sigset_t signals_ = EndSignals();
  sigset_t before_{};
};

}  // namespace arraybridge::ctl

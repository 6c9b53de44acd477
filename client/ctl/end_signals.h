// The signals with which a user ends a command, for those few moments in which it must not just die: what is blocked
// comes as soon as it is let.
#pragma once

#include <csignal>

namespace arraybridge::ctl {

// But for those that who started the command has it ignore, as nohup does: one that is blocked comes all the same.
sigset_t EndSignals();

// While it lives they wait; with its end the command dies of what has come. Of one thread: threads made meanwhile
// inherit it, and those of the client take no signals.
class EndLater {
 public:
  EndLater();
  ~EndLater();
  EndLater(const EndLater&) = delete;
  EndLater& operator=(const EndLater&) = delete;

  // One has come: leave off.
  bool asked() const;

 private:
  const sigset_t signals_ = EndSignals();
  sigset_t before_{};
};

}  // namespace arraybridge::ctl

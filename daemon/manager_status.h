// The ManagerStatus is the line that `systemctl status` shows of a daemon that serves: how much it holds, told anew
// when that changed, and not more often than every few seconds. For one thread, the main one, which has nothing else to
// do.
#pragma once

#include <chrono>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge {

class ManagerStatus {
 public:
  static constexpr std::chrono::milliseconds kEvery{2000};

  // Both outlive it.
  ManagerStatus(const Broker& broker, const Verbs& verbs);
  // Whether anybody listens ($NOTIFY_SOCKET): else there is no need to look.
  bool wanted() const { return wanted_; }

  // The daemon serves, for the first time or again after a reload. `trouble`: what the line says behind the numbers
  // until the next time; empty: nothing.
  void SayReady(std::string trouble = {});
  // Nothing happens before it is time again.
  void TellIfChanged();

 private:
  std::string Line() const;

  const Broker& broker_;
  const Verbs& verbs_;
  const bool wanted_;
  std::chrono::steady_clock::time_point next_{};
  std::string trouble_;
  std::string told_;
};

}  // namespace arraybridge

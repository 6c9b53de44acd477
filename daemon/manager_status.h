// SPDX-License-Identifier: Apache-2.0
// The ManagerStatus is the line that `systemctl status` shows while the daemon serves: sessions, shares and bytes. It
// is sent when it has changed, at most once per kEvery. For the main thread only, which has no other work.
#pragma once

#include <chrono>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge::daemon {

class ManagerStatus {
 public:
  static constexpr std::chrono::milliseconds kEvery{2000};

  // Both arguments outlive it.
  ManagerStatus(const Broker& broker, const Verbs& verbs);
  // Whether a service manager listens ($NOTIFY_SOCKET); otherwise updates are not needed.
  bool wanted() const { return wanted_; }

  // Reports that the daemon serves, at the start and after a reload. `trouble`: appended to the line until the next
  // call; may be empty.
  void SayReady(std::string trouble = {});
  // Does nothing before kEvery has passed.
  void NotifyIfChanged();

 private:
  std::string Line() const;

  const Broker& broker_;
  const Verbs& verbs_;
  const bool wanted_;
  std::chrono::steady_clock::time_point next_{};
  std::string trouble_;
  std::string status_line_;
};

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// The Reloader reads the configuration again while the daemon serves (SIGHUP). It applies the settings that may change,
// logs the others and keeps them until a restart. An invalid configuration changes nothing.
#pragma once

#include "daemon/config/load.h"
#include "daemon/manager_status.h"
#include "daemon/service/http/metrics.h"
#include "daemon/service/verbs/admin.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge::daemon {

// For the main thread only, which alone changes `running`.
class Reloader {
 public:
  // All arguments outlive it. `argc`, `argv`: the daemon's command line.
  Reloader(int argc, const char* const* argv, ConfigRequest& running, Verbs& verbs, Admin& admin, Metrics& metrics,
           ManagerStatus& status)
      : argc_(argc), argv_(argv), running_(running), verbs_(verbs), admin_(admin), metrics_(metrics), status_(status) {}

  // Also reports the result to the log, the metrics and the service manager.
  Result<Reloaded> Reload();

 private:
  void Adopt(const Reloaded& reloaded);

  const int argc_;
  const char* const* const argv_;
  ConfigRequest& running_;
  Verbs& verbs_;
  Admin& admin_;
  Metrics& metrics_;
  ManagerStatus& status_;
};

}  // namespace arraybridge::daemon

// The Reloader reads the configuration again while the daemon serves (SIGHUP): what may change changes, what may not is
// named in the log and kept, and what is wrong changes nothing.
#pragma once

#include "daemon/config/load.h"
#include "daemon/manager_status.h"
#include "daemon/service/certificates.h"
#include "daemon/service/metrics.h"
#include "daemon/service/verbs/admin.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge {

// For one thread, the only one that changes `running`.
class Reloader {
 public:
  // Everything outlives it. `certificates`: null where there is no door over TCP. `argc`, `argv`: what the daemon was
  // started with.
  Reloader(int argc, const char* const* argv, ConfigRequest& running, Verbs& verbs, Admin& admin, Metrics& metrics,
           Certificates* certificates, ManagerStatus& status)
      : argc_(argc),
        argv_(argv),
        running_(running),
        verbs_(verbs),
        admin_(admin),
        metrics_(metrics),
        certificates_(certificates),
        status_(status) {}

  // Tells the log, the metrics and the service manager how it went, too.
  Result<Reloaded> Reload();

 private:
  void Adopt(const Reloaded& reloaded);

  const int argc_;
  const char* const* const argv_;
  ConfigRequest& running_;
  Verbs& verbs_;
  Admin& admin_;
  Metrics& metrics_;
  Certificates* const certificates_;
  ManagerStatus& status_;
};

}  // namespace arraybridge

// The Reloader reads the configuration again while the daemon serves (SIGHUP): what may change changes, what may not is
// named in the log and kept, and what is wrong changes nothing.
#pragma once

#include "daemon/broker/broker.h"
#include "daemon/config.h"
#include "daemon/service/metrics.h"
#include "daemon/service/verbs.h"

namespace arraybridge {

// For one thread, the only one that changes `running`.
class Reloader {
 public:
  // Everything outlives it. `argc`, `argv`: what the daemon was started with.
  Reloader(int argc, const char* const* argv, ConfigRequest& running, Broker& broker, Verbs& verbs, Metrics& metrics)
      : argc_(argc), argv_(argv), running_(running), broker_(broker), verbs_(verbs), metrics_(metrics) {}

  // Tells the log, the metrics and the service manager how it went.
  void Reload();

 private:
  void Adopt(const Reloaded& reloaded);

  const int argc_;
  const char* const* const argv_;
  ConfigRequest& running_;
  Broker& broker_;
  Verbs& verbs_;
  Metrics& metrics_;
};

}  // namespace arraybridge

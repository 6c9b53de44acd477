// SPDX-License-Identifier: Apache-2.0
// Opens the daemon's HTTP pages on a socket that was passed to this process, or else on a new one, which is stored.
#pragma once

#include <memory>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/service/http/http.h"
#include "daemon/service/http/metrics.h"
#include "daemon/service/system/passed_sockets.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge::daemon {

// The sockets for HTTP that this process was started with.
struct HttpSockets {
  UniqueFd of_manager;
  std::vector<StoredDescriptor> own;

  static HttpSockets TakeFrom(PassedSockets& passed) {
    return {passed.Take(PassedSockets::kHttp), passed.TakeOwn(PassedSockets::kHttp)};
  }
};

// Null if HTTP is not configured. `store` may be null; the other arguments outlive the Http.
Result<std::unique_ptr<Http>> OpenHttp(HttpSockets sockets, DescriptorStore* store, const Config& config,
                                       const Broker& broker, const Verbs& verbs, const Metrics& metrics);

}  // namespace arraybridge::daemon

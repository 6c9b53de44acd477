// SPDX-License-Identifier: Apache-2.0
// TakeOver makes this daemon the next life of its broker: it sorts the previous daemon's stored descriptors, and the
// broker rebuilds its tables from them.
#pragma once

#include <utility>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/service/system/listener.h"
#include "daemon/service/system/manager_store.h"
#include "daemon/service/wire/life.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The state that the previous daemon stored, taken over by the broker.
struct TakenOver {
  Recovered recovered;
  std::vector<std::pair<SessionId, Connection>> lifelines;
};

// Reports the objects that were taken over and that are lost. `store` is null if there is nothing to take over; the
// broker then stores nothing. A store without room even for the journal is as none, and the log says so. Any error: the
// daemon must not serve; the store keeps everything for the next attempt.
Result<TakenOver> TakeOver(Broker& broker, DescriptorStore* store, std::vector<StoredDescriptor> stored);

// `stores`: whether the broker stores its objects.
Life LifeOf(const Recovered& recovered, const ManagerStore* store, bool stores);

}  // namespace arraybridge::daemon

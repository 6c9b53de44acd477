// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_log.h"

#include <grpc/support/log.h>

#include <chrono>
#include <string_view>

#include "daemon/service/telemetry/log.h"
#include "daemon/service/telemetry/log_throttle.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {
namespace {

struct Throttle {
  Mutex mutex;
  LogThrottle lines AB_GUARDED_BY(mutex);
};

void Take(gpr_log_func_args* line) {
  static auto& throttle = *new Throttle;  // never destroyed: gRPC's threads may outlive static objects
  const MutexLock lock(throttle.mutex);
  const auto dropped = throttle.lines.Admit(std::chrono::steady_clock::now(), log::LinesPerSecond());
  if (!dropped) return;
  log::Warn("grpc: {}{}", std::string_view(line->message), *dropped == 0 ? "" : Concat(" (and ", *dropped, " more)"));
}

}  // namespace

void TakeGrpcLog() { ::gpr_set_log_function(Take); }

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// VerbParts are the parts of the service that the verbs of all nouns use. Classes of verbs derive from it privately.
#pragma once

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/reclaimer.h"
#include "daemon/service/reclaim/session_cuts.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/telemetry/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/handover.h"
#include "daemon/service/wire/handle_offer.h"

namespace arraybridge::daemon {

// Each of them is thread-safe and outlives the verbs.
struct VerbParts {
  const Config& config_;
  Broker& broker_;
  const RunsAt& here_;
  const Admission& admission_;
  WaitingLine& line_;
  Reclaimer& reclaimer_;
  Handover& handover_;
  ServiceCounts& counts_;
  SessionCuts& cuts_;
};

}  // namespace arraybridge::daemon

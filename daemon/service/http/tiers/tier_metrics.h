// SPDX-License-Identifier: Apache-2.0
// The metrics of a tier: what the files of shares use, how their moves ended, and whether files are written.
#pragma once

#include <string>

#include "daemon/moves/counted_mover.h"

namespace arraybridge::daemon {

// In Prometheus' text format. A broker without a directory has the same metrics, which are 0.
std::string TierMetrics(const TierNumbers& tier);

}  // namespace arraybridge::daemon

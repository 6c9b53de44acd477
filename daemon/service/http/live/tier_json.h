// SPDX-License-Identifier: Apache-2.0
// The status page's script reads the state of the tier here.
#pragma once

#include "daemon/moves/counted_mover.h"
#include "daemon/service/http/http.h"

namespace arraybridge::daemon {

// A TierResponse without shares as JSON: the bytes of all files, their maximum, and why no files are written.
Http::Page TierJson(const TierNumbers& tier);

}  // namespace arraybridge::daemon

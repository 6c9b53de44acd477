// SPDX-License-Identifier: Apache-2.0
// Makes a Config from a Reading: resolves paths, percentages and defaults that depend on other settings, and refuses
// values that contradict each other.
#pragma once

#include "daemon/config/sources.h"

namespace arraybridge::daemon {

// Consumes the draft of `reading`. INVALID_ARGUMENT names the origin and the error: the first one of the
// reading; AllErrors returns the others.
Result<Config> Resolve(Reading& reading);

}  // namespace arraybridge::daemon

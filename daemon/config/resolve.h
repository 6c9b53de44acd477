// Makes one Config of what was read: works out paths, percentages and defaults that follow from other settings, and
// refuses values that contradict each other.
#pragma once

#include "daemon/config/sources.h"

namespace arraybridge {

// Takes the draft out of `reading`. INVALID_ARGUMENT names the origin, and what is wrong. `checking`: as CheckTls.
Result<Config> Resolve(Reading& reading, bool checking);

}  // namespace arraybridge

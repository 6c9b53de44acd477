// What was said becomes one Config: paths, percentages and defaults that follow from other settings are worked out, and
// what cannot hold together is refused.
#pragma once

#include "daemon/config/sources.h"

namespace arraybridge {

// Takes the draft out of `reading`. INVALID_ARGUMENT names where it was said, and what is wrong. `checking`: as
// CheckTls.
Result<Config> Resolve(Reading& reading, bool checking);

}  // namespace arraybridge

// What room is asked for: a Publish that the broker will judge. Its limits are known here, so what it would refuse is
// refused before a byte is copied.
#pragma once

#include <span>
#include <string_view>

#include <arraybridge/broker.h>
#include <arraybridge/view.h>

#include "proto/boundary/share_limits.h"

namespace arraybridge {

// INVALID_ARGUMENT, as the broker says it. `arrays`: types and shapes. REQUIRES: their bytes do not overflow.
Status CheckPurpose(const ShareLimits& limits, std::string_view ns, std::span<const View> arrays,
                    const Broker::PublishOptions& purpose);

}  // namespace arraybridge

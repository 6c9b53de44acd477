// The broker's limits on a Publish, checked here before room is carved and a byte is copied.
#pragma once

#include <span>
#include <string_view>

#include <arraybridge/broker.h>
#include <arraybridge/view.h>

#include "proto/boundary/share_limits.h"

namespace arraybridge {

// INVALID_ARGUMENT, as the broker says it. `arrays`: types and shapes. REQUIRES: their bytes do not overflow.
Status CheckPublish(const ShareLimits& limits, std::string_view ns, std::span<const View> arrays,
                    const Broker::PublishOptions& options);

}  // namespace arraybridge

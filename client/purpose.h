// What room is asked for: a Publish that the broker will judge. Its limits are known here, so what it would refuse is
// refused before a byte is copied.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <arraybridge/array_spec.h>
#include <arraybridge/broker.h>

#include "proto/boundary/share_limits.h"

namespace arraybridge {

// INVALID_ARGUMENT, as the broker says it. `offsets`: of the arrays in their range. REQUIRES: their sizes do not
// overflow.
Status CheckPurpose(const ShareLimits& limits, std::string_view ns, std::span<const ArraySpec> specs,
                    std::span<const uint64_t> offsets, const Broker::PublishOptions& purpose);

}  // namespace arraybridge

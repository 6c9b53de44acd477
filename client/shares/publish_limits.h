// SPDX-License-Identifier: Apache-2.0
// Checks a Publish against the broker's limits, before room is carved and any byte is copied.
#pragma once

#include <span>
#include <string_view>

#include <arraybridge/broker.h>
#include <arraybridge/view.h>

#include "proto/boundary/share_limits.h"

namespace arraybridge {

// INVALID_ARGUMENT, with the broker's message. `arrays`: types and shapes. REQUIRES: their sizes in bytes do not
// overflow.
Status CheckPublish(const ShareLimits& limits, std::string_view ns, std::span<const View> arrays,
                    const Broker::PublishOptions& options);

}  // namespace arraybridge

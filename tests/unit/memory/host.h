// SPDX-License-Identifier: Apache-2.0
// Names that tests of memory on the host share.
#pragma once

#include "proto/boundary/handle.h"

namespace arraybridge {

inline const Device kHost{kDeviceCpu, 0, {}};
inline constexpr uint64_t kMiB = 1ull << 20;

}  // namespace arraybridge

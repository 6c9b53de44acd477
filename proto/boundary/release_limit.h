// SPDX-License-Identifier: Apache-2.0
// The limit on one Release request.
#pragma once

#include <cstddef>

namespace arraybridge {

// The number of leases, arenas, shares and direct channels together. The broker releases them under one acquisition of
// its lock, about 2 us for each lease, so a client with more of them sends several requests.
inline constexpr size_t kReleaseNumbersMax = 1024;

}  // namespace arraybridge

// How much one Release gives back.
#pragma once

#include <cstddef>

namespace arraybridge {

// Numbers of leases, arenas, shares and direct channels together. The broker ends them with its lock held once, a lease
// in about 2 us, so a client with more of them sends several requests.
inline constexpr size_t kReleaseNumbersMax = 1024;

}  // namespace arraybridge

// Acquiring: from what a broker grants to arrays of this process. Everything that comes in is checked before it is
// mapped or pointed into; leases of what is refused go back.
#pragma once

#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/broker.h>

#include "client/session.h"

namespace arraybridge {

// `timeout_ms`: how long the broker waits for names that are not there.
Result<std::vector<Acquired>> AcquireShares(Session& session, std::string_view ns, std::span<const ShareRef> refs,
                                            MapMode mode, uint64_t timeout_ms, Deadline deadline);

}  // namespace arraybridge

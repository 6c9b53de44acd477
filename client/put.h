// A put whose memory this process never names: carved, filled and published in one step, without a Placement that
// somebody could hold.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string_view>

#include <arraybridge/broker.h>

#include "client/session.h"

namespace arraybridge {

// Copies of host arrays, published: through the ring if nobody waits, else in one call, which is waited for as long as
// `timeout` says, however long the copy took. Nothing: it was not done, and takes the long way, Place and Publish,
// which also says what may be wrong with it.
std::optional<Result<Share>> PutInOneStep(Session& session, std::string_view ns, std::span<const View> sources,
                                          const Broker::PublishOptions& options, std::chrono::milliseconds timeout);

}  // namespace arraybridge

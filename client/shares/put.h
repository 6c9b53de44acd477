// A put in one step: carve, fill and publish, without a Placement that a caller could keep.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string_view>

#include <arraybridge/broker.h>

#include "client/session/session.h"

namespace arraybridge {

// Copies host arrays and publishes them: through the session queue if the publish is not waited for, otherwise by one
// request. The timeout of that request starts after the copy. Returns nothing if the put was not done; the caller then
// uses Place and Publish, which also report any error in the arguments.
std::optional<Result<Share>> PutInOneStep(Session& session, std::string_view ns, std::span<const View> sources,
                                          const Broker::PublishOptions& options, std::chrono::milliseconds timeout);

}  // namespace arraybridge

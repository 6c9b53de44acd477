// SPDX-License-Identifier: Apache-2.0
// Channelz lists every gRPC connection of the process, whichever server has it. It is for administrators alone.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

namespace arraybridge::daemon {

// Whether the caller of this call may use channelz. Must be thread-safe.
using MayLook = std::function<bool(const grpc::ServerContextBase& context)>;

// Enables channelz for every server that is built from now on: gRPC stores this setting per process. REQUIRES: the
// public doors have been built.
void WishForChannelz();

// Cancels calls of channelz by callers that `may_look` refuses. REQUIRES: `may_look` outlives the server that is built.
void GuardChannelz(grpc::ServerBuilder& builder, MayLook may_look);

}  // namespace arraybridge::daemon

// Channelz tells of every connection that gRPC has, of whichever server: a service for administrators, which no public
// door has.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

namespace arraybridge {

// Thread-safe: whether who makes this call may look.
using MayLook = std::function<bool(const grpc::ServerContextBase& context)>;

// Every server that is built from here on has the service: gRPC keeps such a wish for the process. REQUIRES: the public
// doors are built.
void WishForChannelz();

// Calls of the service by others are cancelled. REQUIRES: `may_look` holds as long as the server that is built.
void GuardChannelz(grpc::ServerBuilder& builder, MayLook may_look);

}  // namespace arraybridge

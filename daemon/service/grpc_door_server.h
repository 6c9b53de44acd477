// How every gRPC door serves: connections that somebody else accepted, their limits, health and reflection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/config.h"

namespace arraybridge {

// Serves nobody yet; health says SERVING of `name`. `service` outlives it.
std::unique_ptr<grpc::Server> StartServer(const Config& config, grpc::Service& service, const std::string& name);

}  // namespace arraybridge

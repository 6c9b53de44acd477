// How every gRPC door serves: connections that somebody else accepted, their limits, health and reflection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "daemon/config/config.h"

namespace arraybridge {

// Serves nobody yet; health says SERVING of `name`. `service` outlives it. `also`: what this door has that others have
// not.
std::unique_ptr<grpc::Server> StartServer(const Config& config, grpc::Service& service, const std::string& name,
                                          const std::function<void(grpc::ServerBuilder&)>& also = {});

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// The common configuration of all gRPC doors: externally accepted connections, their limits, health and reflection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "daemon/config/config.h"
#include "daemon/service/grpc/grpc_reflection.h"

namespace arraybridge::daemon {

// Starts a server without connections; health reports SERVING for `name`. `service` and `reflection` must outlive the
// server. `also` adds settings that only this door has.
std::unique_ptr<grpc::Server> StartServer(const Config& config, grpc::Service& service, GrpcReflection& reflection,
                                          const std::string& name,
                                          const std::function<void(grpc::ServerBuilder&)>& also = {});

}  // namespace arraybridge::daemon

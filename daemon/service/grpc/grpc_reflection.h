// SPDX-License-Identifier: Apache-2.0
// Reflection tells clients such as grpcurl which services a door has, and gives them the files that describe these. It
// speaks v1 and v1alpha, whose messages are the same. The reflection service of gRPC 1.51 speaks v1alpha alone, in a
// thread for each stream.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <string>
#include <vector>

namespace arraybridge::daemon {

// Thread-safe. Its streams are calls of their connection: limits.grpc_streams_max.
class GrpcReflection final : public grpc::CallbackGenericService {
 public:
  // `services`: the door's services beside health and reflection.
  explicit GrpcReflection(std::vector<std::string> services);

  // gRPC passes every call of a method that no service of the door has: UNIMPLEMENTED unless it is reflection.
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  std::vector<std::string> services_;
};

}  // namespace arraybridge::daemon

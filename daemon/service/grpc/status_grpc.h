// A Status as gRPC says it: the same code and text, and google.rpc.ErrorInfo for programs that branch on the reason.
#pragma once

#include <grpcpp/support/status.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// Details hold a serialised google.rpc.Status whose only detail is ErrorInfo{reason, "arraybridge", metadata}; none
// if the status has no reason.
grpc::Status ToGrpc(const Status& status);

}  // namespace arraybridge

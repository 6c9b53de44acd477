// SPDX-License-Identifier: Apache-2.0
// Converts a Status to gRPC: the same code and text, and google.rpc.ErrorInfo for programs that branch on the reason.
#pragma once

#include <grpcpp/support/status.h>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The details are a serialised google.rpc.Status whose only detail is ErrorInfo{reason, "arraybridge", metadata}. A
// status without a reason has no details.
grpc::Status ToGrpc(const Status& status);

}  // namespace arraybridge::daemon

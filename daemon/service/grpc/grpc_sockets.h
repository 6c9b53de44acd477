// SPDX-License-Identifier: Apache-2.0
// gRPC reads, writes and closes the sockets that it is given, and says nothing of it. The linker passes its calls of
// recvmsg, sendmsg and close to this file (--wrap, daemon/CMakeLists.txt). It shows the bytes to the socket's meter,
// and shuts the socket down when the meter refuses.
#pragma once

#include <memory>

#include "daemon/service/grpc/grpc_meter.h"

namespace arraybridge::daemon {

// From now on until `descriptor` is closed, `meter` counts what is read from it and written to it. False: descriptors
// with so high a number are not metered. REQUIRES: no other thread uses the descriptor yet.
bool MeterSocket(int descriptor, std::unique_ptr<GrpcMeter> meter);

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// gRPC aborts the process without a message if it cannot create a thread or a descriptor, so the limits are checked
// before gRPC starts.
#pragma once

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Takes the descriptors, threads and address space that an idle daemon needs, and releases them. RESOURCE_EXHAUSTED
// names the limit. FAILED_PRECONDITION: a system call is refused, or /proc is missing.
Status CheckStartup();

}  // namespace arraybridge::daemon

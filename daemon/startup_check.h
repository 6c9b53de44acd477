// gRPC aborts the process without a message if it cannot create a thread or a descriptor, so the limits are checked
// before gRPC starts.
#pragma once

#include "proto/boundary/result.h"

namespace arraybridge {

// Takes the descriptors and threads that an idle daemon needs, and releases them. RESOURCE_EXHAUSTED names the limit.
Status CheckStartup();

}  // namespace arraybridge

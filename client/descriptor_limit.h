// Why a process gets no further descriptor, in words that say which limit it is and what helps.
#pragma once

#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge {

// RESOURCE_EXHAUSTED, with DESCRIPTOR_LIMIT as the reason if it is this process's limit or the system's. `what`: the
// descriptor would have been for. `error`: the errno.
Status NoDescriptor(std::string_view what, int error);

}  // namespace arraybridge

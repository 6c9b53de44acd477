// SPDX-License-Identifier: Apache-2.0
// The error for a descriptor that cannot be opened. It names the limit that was reached and a remedy.
#pragma once

#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge {

// RESOURCE_EXHAUSTED. The reason is DESCRIPTOR_LIMIT if the limit of this process or of the system was reached. `what`:
// the purpose of the descriptor. `error`: the errno.
Status NoDescriptor(std::string_view what, int error);

}  // namespace arraybridge

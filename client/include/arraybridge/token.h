// SPDX-License-Identifier: Apache-2.0
// Finds the secret that opens namespaces (Broker::Options::token) in the environment or in a file, so that it appears
// in no argument and in no log.
#pragma once

#include <string>

#include "proto/boundary/result.h"

namespace arraybridge {

// Returns the content of `file` if one is named; otherwise $ARRAYBRIDGE_TOKEN; otherwise the content of the file
// $ARRAYBRIDGE_TOKEN_FILE; otherwise an empty string. INVALID_ARGUMENT names a file that cannot be read or contains no
// token.
Result<std::string> FindToken(const std::string& file = {});

}  // namespace arraybridge

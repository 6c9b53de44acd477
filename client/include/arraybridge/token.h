// Where a program finds the secret that opens namespaces to it (Broker::Options::token), if nobody hands it over: in
// its environment, or in a file, so that it is in no argument and in no log.
#pragma once

#include <string>

#include "proto/boundary/result.h"

namespace arraybridge {

// What stands in this file, if one is named; else $ARRAYBRIDGE_TOKEN, else what stands in the file
// $ARRAYBRIDGE_TOKEN_FILE; empty without any. INVALID_ARGUMENT names a file that cannot be read or holds none.
Result<std::string> FindToken(const std::string& file = {});

}  // namespace arraybridge

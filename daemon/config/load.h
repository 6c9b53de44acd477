// SPDX-License-Identifier: Apache-2.0
// Loads the configuration when the daemon starts, and again on a reload.
#pragma once

#include <string>

#include "daemon/config/config.h"
#include "daemon/config/sources.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

struct ConfigRequest {
  Config config;
  bool check_only = false;
  std::string output;  // not empty (--help, --version, --print-config, --print-reference): print it and exit
  GivenByKey given;
};

// Flags override the environment (ARRAYBRIDGED_SECTION__KEY), which overrides conf.d/*.toml, the file, and the
// defaults, in this order. INVALID_ARGUMENT names the flag, the variable, or file, line and column, then the value and
// the values that are allowed. NOT_FOUND, PERMISSION_DENIED: the file. AllErrors (sources.h) returns every error.
Result<ConfigRequest> LoadConfig(int argc, const char* const* argv);

// Loads the configuration again and copies the values that a reload may change into `running`; an error changes
// nothing. REQUIRES: the arguments are those of LoadConfig; one thread at a time.
Result<Reloaded> ReloadConfig(int argc, const char* const* argv, ConfigRequest* running);

}  // namespace arraybridge::daemon

// Loads the configuration when the daemon starts, and again when it is told to.
#pragma once

#include <string>

#include "daemon/config/config.h"
#include "daemon/config/sources.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct ConfigRequest {
  Config config;
  bool check_only = false;
  std::string output;  // not empty (--help, --version, --print-config, --print-reference): print it and exit
  SaidByKey said;
};

// Flags over environment (ARRAYBRIDGED_SECTION__KEY) over conf.d/*.toml over the file over defaults. INVALID_ARGUMENT
// names the flag, the variable, or file, line and column, the value and what would be right. NOT_FOUND,
// PERMISSION_DENIED: the file.
Result<ConfigRequest> LoadConfig(int argc, const char* const* argv);

// Loads again, for a daemon that runs with `running`, and changes there what may change; an error changes nothing.
// REQUIRES: the arguments of LoadConfig; one thread at a time.
Result<Reloaded> ReloadConfig(int argc, const char* const* argv, ConfigRequest* running);

}  // namespace arraybridge

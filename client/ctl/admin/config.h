// SPDX-License-Identifier: Apache-2.0
// The commands about configuration files that need no broker: print the defaults, and check a file.
#pragma once

#include <string>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// A configuration file with every setting, its default and its description.
std::string_view DefaultConfig();

// Runs `arraybridged --check-config` on the file or, if `file` is empty, on the files that arraybridged would read; it
// prints "valid". The program is looked for beside this one, then in $PATH. FAILED_PRECONDITION: the configuration is
// wrong, and arraybridged has printed each error with its place on standard error. NOT_FOUND: there is no arraybridged.
Status CheckConfig(const std::string& file);

}  // namespace arraybridge::ctl

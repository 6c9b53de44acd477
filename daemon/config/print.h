// SPDX-License-Identifier: Apache-2.0
// Prints the configuration: the values in force, the example file with all defaults, and the keys of the manual page.
#pragma once

#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/sources.h"

namespace arraybridge::daemon {

// All settings in the order of the file, then the tables of GPUs and namespaces. A secret is shown as its file's name.
std::vector<ConfigValue> ValuesOf(const Config& config, const GivenByKey& given);

// `values` as a file, with the origin of each value.
std::string PrintedValues(const std::vector<ConfigValue>& values);

// The content of deploy/config/arraybridged.toml.
std::string ExampleFile();

// The keys of deploy/man/arraybridged.toml.5.scd.
std::string ManualKeys();

}  // namespace arraybridge::daemon

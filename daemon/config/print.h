// The configuration in print: values in force, the file of all defaults, and the keys of the manual page.
#pragma once

#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/sources.h"

namespace arraybridge {

// All settings in the order of the file, then the tables of GPUs and namespaces. Of a secret it has the file's name.
std::vector<ConfigValue> ValuesOf(const Config& config, const SaidByKey& said);

// As a file, with the origin of each value.
std::string PrintedValues(const std::vector<ConfigValue>& values);

// deploy/config/arraybridged.toml.
std::string ExampleFile();

// The keys of deploy/man/arraybridged.toml.5.scd.
std::string ManualKeys();

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Reads a configuration file into texts: keys, values, and the position of each. settings.h knows the meaning of each
// key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

struct ConfigEntry {
  std::string key;  // dotted: "memory.host.cache"
  // As a flag would give it; the entries of a list are comma-separated. Nullopt: the value is neither a text, number or
  // boolean nor a list of these.
  std::optional<std::string> text;
  std::string origin;    // "/etc/arraybridge/arraybridged.toml:7:9"
  bool is_list = false;  // a list of zero or several entries; a list of one is read as its entry
};

// Reads TOML 1.0; the entries are in the file's order. INVALID_ARGUMENT names file, line and column: the text is not
// TOML; users other than the owner may write the file. NOT_FOUND: no such file. PERMISSION_DENIED: the daemon may not
// read it.
Result<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

// The *.toml files in the directory conf.d beside `path`, sorted by name; there may be none.
std::vector<std::string> DropInsOf(const std::string& path);

}  // namespace arraybridge::daemon

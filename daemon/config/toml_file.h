// A configuration file as text: keys, values, and where each of them stands. settings.h knows what a key means.
#pragma once

#include <string>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge {

struct ConfigEntry {
  std::string key;       // dotted: "memory.host.cache"
  std::string text;      // as a flag would write it; entries of a list have commas between them
  std::string origin;    // "/etc/arraybridge/arraybridged.toml:7:9"
  bool is_list = false;  // of none or several: one value in brackets is that value
};

// TOML 1.0. INVALID_ARGUMENT names file, line and column: not TOML; a value that is no text, number, boolean or list of
// those; a file that other users than its owner may write. NOT_FOUND: no such file. PERMISSION_DENIED: it may not be
// read.
Result<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

// The *.toml files of the directory conf.d beside `path`, in the order of their names; there may be none.
std::vector<std::string> DropInsOf(const std::string& path);

}  // namespace arraybridge

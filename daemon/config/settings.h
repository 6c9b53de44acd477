// The table of settings: one row a key. Sources, flags, --print-config, the example file and the manual page are made
// of it, so that they cannot differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/setting.h"

namespace arraybridge {

// In the order of the file.
const std::vector<Setting>& Settings();
// Null: there is no such key.
const Setting* FindSetting(std::string_view key);

// A key in a table that an operator named: "namespace.images.quota" is the setting namespace.default.quota of "images",
// and "memory.GPU-<uuid>.kinds" the setting memory.cuda.kinds of that GPU.
struct TableKey {
  std::string setting;
  std::string table;
  bool of_namespace = false;
};
// Nothing: the key is a setting's own. The name may hold dots, and need not be a UUID.
std::optional<TableKey> SplitTableKey(const std::string& key);

}  // namespace arraybridge

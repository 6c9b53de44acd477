// SPDX-License-Identifier: Apache-2.0
// The table of settings: one row for each key. Files, environment, flags, --print-config, the example file and the
// manual page are all derived from it, so that they cannot differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/setting.h"

namespace arraybridge::daemon {

// In the order in which the file lists them.
const std::vector<Setting>& Settings();
// Null if there is no such key.
const Setting* FindSetting(std::string_view key);

// A key in a table that an operator has named: "namespace.images.quota" is the setting namespace.default.quota of
// "images", and "memory.GPU-<uuid>.kinds" is the setting memory.cuda.kinds of that GPU.
struct TableKey {
  std::string setting;
  std::string table;
  bool of_namespace = false;
};
// Returns nullopt for a key outside such a table. The table's name may hold dots and need not be a UUID.
std::optional<TableKey> SplitTableKey(const std::string& key);

}  // namespace arraybridge::daemon

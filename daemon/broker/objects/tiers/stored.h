// SPDX-License-Identifier: Apache-2.0
// Stored names the file with a share's bytes. The file is removed with its last owner, so a share that is withdrawn
// leaves no file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace arraybridge::daemon {

struct Stored {
  std::string file;                   // in the directory of the tier; empty: it was damaged and is set aside
  bool durable = false;               // the file stays while the bytes are in memory, and after the broker
  std::shared_ptr<const void> owner;  // of the file; null until the directory is open
};

// Of a share that never had a file: empty, and false.
inline std::string_view FileOf(const std::unique_ptr<Stored>& stored) {
  return stored == nullptr ? std::string_view() : stored->file;
}
inline bool IsDurable(const std::unique_ptr<Stored>& stored) { return stored != nullptr && stored->durable; }

// As the journal names it. Null: the share has no file.
inline std::unique_ptr<Stored> StoredAs(std::string_view file, bool durable) {
  if (file.empty()) return nullptr;
  return std::make_unique<Stored>(Stored{std::string(file), durable, nullptr});
}

}  // namespace arraybridge::daemon

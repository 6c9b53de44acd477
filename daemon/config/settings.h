// The table of settings: everything that can be said to the daemon has one row, with its key in the file, its flag, its
// default and its reader. The environment's name of it follows from the key, so the three ways to say a thing cannot
// drift apart.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/gpu_table.h"
#include "daemon/config/namespace_table.h"
#include "daemon/config/quantity.h"

namespace arraybridge {

// What was said, before what depends on something else is known.
struct Draft {
  Config config;
  std::variant<uint64_t, Percent> host_capacity = Percent{50};
  std::variant<uint64_t, Percent> namespace_quota = Percent{100};
  std::string listen;                // empty: the default place; of several, with commas between them
  std::optional<std::string> admin;  // a path, or empty: off
  std::optional<std::string> http;   // HOST:PORT, or empty: off
  bool http_public = false;          // it may be another address than this host's own
  std::optional<std::chrono::milliseconds> exit_when_idle;
  std::map<std::string, NamespaceDraft> namespaces;
  std::map<std::string, GpuDraft> gpus;  // by UUID
};

struct Setting {
  // Who may say it, beside the flag. What is loaded into the daemon is not its environment's to say, and what belongs
  // to one start is no file's.
  enum class Sources : uint8_t { kAll, kFile, kFlagOnly };

  std::string key;   // "memory.host.cache" is cache in [memory.host], and ARRAYBRIDGED_MEMORY__HOST__CACHE
  std::string flag;  // without dashes; empty: a limit (--limit NAME=VALUE)
  Sources sources = Sources::kAll;
  std::string fallback;  // the default as text; empty: it is worked out from other settings
  std::string help;
  std::function<Status(std::string_view text, Draft& draft)> read;
  // What was worked out; empty function: the text itself is shown.
  std::function<std::string(const Config& config)> show;
  // A reload takes it over; empty function: it holds until a restart.
  std::function<void(const Config& from, Config& to)> adopt = {};
  bool is_list = false;    // of several, with commas between them
  bool is_switch = false;  // its flag alone says true, and --flag=false takes that back
};

// In the order of the file.
const std::vector<Setting>& Settings();
// Null: no such key.
const Setting* FindSetting(std::string_view key);

}  // namespace arraybridge

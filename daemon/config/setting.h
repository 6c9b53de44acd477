// A Setting is one row of the configuration's table: its key, how its text is read and where the value goes, and one
// line for readers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/quantity.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// The table [namespace.NAME]; absent values are those of [namespace.default].
struct NamespaceDraft {
  std::optional<BytesOrPercent> quota;
  std::optional<std::chrono::milliseconds> share_lifetime;
  std::optional<std::chrono::milliseconds> orphan_grace;
  std::optional<bool> withdraw_on_exit;
  AccessList access;
};

// The table [memory."GPU-<uuid>"]; absent values are those of [memory.cuda].
struct GpuDraft {
  std::optional<uint64_t> capacity_percent;
  std::optional<std::vector<HandleKind>> kinds;
};

// A Draft is the configuration as it was read, before values that depend on each other are resolved.
struct Draft {
  Config config;
  BytesOrPercent host_capacity = Percent{50};
  BytesOrPercent namespace_quota = Percent{100};
  std::string listen;                // empty: the default place
  std::optional<std::string> admin;  // a path, or empty: off
  std::optional<std::string> http;   // HOST:PORT, or empty: off
  bool http_public = false;
  std::optional<std::chrono::milliseconds> exit_when_idle;
  std::map<std::string, NamespaceDraft> namespaces;
  std::map<std::string, GpuDraft> gpus;  // by UUID
};

// How the text of a setting is read, what it is by default, and how a reload treats it.
struct Value {
  // `table`: the namespace or the GPU whose own table holds the text; else empty.
  std::function<Status(std::string_view text, const std::string& table, Draft& draft)> read;
  std::string fallback;                                       // the default; empty: it follows from other settings
  std::string example;                                        // of a setting without fallback
  std::string range;                                          // for the manual page
  std::function<std::string(const Config& config)> show;      // of a setting without fallback
  std::function<void(const Config& from, Config& to)> adopt;  // what a reload does
  bool reloads = false;                                       // else it holds until a restart
  bool is_list = false;                                       // entries with commas between them
  bool is_switch = false;                                     // --flag is true, --flag=false takes it back
  bool has_tables = false;                                    // namespaces or GPUs may have their own value

  // The same with another property.
  Value Reloads() && { return reloads = true, std::move(*this); }
  Value List() && { return is_list = true, std::move(*this); }
  Value Switch() && { return is_switch = true, std::move(*this); }
  Value ShownAs(std::string an_example, std::function<std::string(const Config& config)> shown) && {
    return example = std::move(an_example), show = std::move(shown), std::move(*this);
  }
};

struct Setting {
  // A library that the daemon loads is not named by the environment; settings of one start are not in a file.
  enum class Sources : uint8_t { kAll, kFile, kFlagOnly };

  std::string key;   // "memory.host.cache" is cache in [memory.host], and ARRAYBRIDGED_MEMORY__HOST__CACHE
  std::string flag;  // without dashes; empty: there is none. Limits have --limit NAME=VALUE
  Value value;
  std::string help;       // one line
  std::string more = {};  // further sentences for the manual page
  Sources sources = Sources::kAll;
};

}  // namespace arraybridge

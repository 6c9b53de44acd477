// SPDX-License-Identifier: Apache-2.0
// A Setting is one row of the configuration's table: its key, the reader of its text, the place of its value, and its
// help text.
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

namespace arraybridge::daemon {

// The table [namespace.NAME]. An absent value is taken from [namespace.default].
struct NamespaceDraft {
  std::optional<BytesOrPercent> quota;
  std::optional<std::chrono::milliseconds> share_lifetime;
  std::optional<std::chrono::milliseconds> orphan_grace;
  std::optional<bool> withdraw_on_exit;
  AccessList access;
};

// The table [memory."GPU-<uuid>"]. An absent value is taken from [memory.cuda].
struct GpuDraft {
  std::optional<uint64_t> capacity_percent;
  std::optional<std::vector<HandleKind>> kinds;
};

// A Draft is the configuration as it was read, before resolve.cc resolves values that depend on other values.
struct Draft {
  Config config;
  BytesOrPercent host_capacity = Percent{50};
  BytesOrPercent namespace_quota = Percent{100};
  std::optional<std::string> listen;  // a path, or empty: off
  std::optional<std::string> admin;   // a path, or empty: off
  std::optional<std::string> http;    // HOST:PORT, or empty: off
  bool http_public = false;
  std::optional<std::chrono::milliseconds> exit_when_idle;
  std::map<std::string, NamespaceDraft> namespaces;
  std::map<std::string, GpuDraft> gpus;  // by UUID
};

// A Value says how the text of a setting is read, which default it has, and how a reload treats it.
struct Value {
  // `table`: the namespace or the GPU whose table holds the text; empty for a setting outside such a table.
  std::function<Status(std::string_view text, const std::string& table, Draft& draft)> read;
  std::string fallback;                                       // the default; empty: it depends on other settings
  std::string example;                                        // of a setting without fallback
  std::string range;                                          // for the manual page
  std::function<std::string(const Config& config)> show;      // of a setting without fallback
  std::function<void(const Config& from, Config& to)> adopt;  // copies the value on a reload
  bool reloads = false;                                       // false: a new value needs a restart
  bool is_list = false;                                       // comma-separated entries
  bool is_switch = false;                                     // --flag means true, --flag=false means false
  bool has_tables = false;                                    // a namespace or a GPU may have its own value

  // These return the value with one property changed.
  Value Reloads() && { return reloads = true, std::move(*this); }
  Value List() && { return is_list = true, std::move(*this); }
  Value Switch() && { return is_switch = true, std::move(*this); }
  Value ShownAs(std::string an_example, std::function<std::string(const Config& config)> shown) && {
    return example = std::move(an_example), show = std::move(shown), std::move(*this);
  }
};

struct Setting {
  // The environment cannot name a library that the daemon loads. A file cannot hold a setting that concerns a single
  // start.
  enum class Sources : uint8_t { kAll, kFile, kFlagOnly };

  std::string key;   // "memory.host.cache": key cache of [memory.host], ARRAYBRIDGED_MEMORY__HOST__CACHE
  std::string flag;  // without dashes; empty: no flag. Limits use --limit NAME=VALUE
  Value value;
  std::string help;       // one line
  std::string more = {};  // more sentences for the manual page
  Sources sources = Sources::kAll;
};

}  // namespace arraybridge::daemon

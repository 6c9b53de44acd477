// What was said, before it is resolved: each source is read through the table of settings, the weakest first, so that
// what is said later wins; where the winner stood is remembered for errors and for --print-config.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/config/settings.h"
#include "daemon/config/toml_file.h"

namespace arraybridge {

inline constexpr char kSystemConfigFile[] = "/etc/arraybridge/arraybridged.toml";

class Reading {
 public:
  // `where`: how an error names it.
  Status Take(const Setting& setting, std::string_view text, std::string where) {
    const Status read = setting.read(text, draft_);
    if (!read.ok()) return InvalidArgument(where, ": ", read.message());
    said_[setting.key] = {std::string(text), std::move(where), ++turn_};
    return Ok();
  }

  Status TakeNamespace(const std::string& name, const NamespaceSetting& setting, const ConfigEntry& entry) {
    const Status read = setting.read(entry.text, draft_.namespaces[name]);
    if (!read.ok()) return InvalidArgument(entry.origin, ": ", read.message());
    said_[entry.key] = {entry.text, entry.origin, ++turn_};
    return Ok();
  }

  Status TakeGpu(const std::string& uuid, const GpuSetting& setting, const ConfigEntry& entry) {
    const Status read = setting.read(entry.text, draft_.gpus[uuid]);
    if (!read.ok()) return InvalidArgument(entry.origin, ": ", read.message());
    said_[entry.key] = {entry.text, entry.origin, ++turn_};
    return Ok();
  }

  Draft& draft() { return draft_; }
  // Where the winner stood; empty: nobody said it.
  std::string OriginOf(const std::string& key) const {
    const auto found = said_.find(key);
    return found == said_.end() ? std::string() : found->second.origin;
  }
  // The same, to begin a message with.
  std::string Where(const std::string& key) const {
    const std::string origin = OriginOf(key);
    return origin.empty() ? origin : origin + ": ";
  }
  // Where a namespace's table says something.
  std::string WhereOfNamespace(const std::string& name) const {
    for (const auto& [key, said] : said_) {
      const auto its = SplitNamespaceKey(key);
      if (its && its->first == name) return said.origin + ": ";
    }
    return {};
  }
  // Of two that somebody said, the one that was read later has more; 0: nobody said it.
  size_t StrengthOf(const std::string& key) const {
    const auto found = said_.find(key);
    return found == said_.end() ? 0 : found->second.turn;
  }
  std::map<std::string, std::string> texts() const {
    std::map<std::string, std::string> texts;
    for (const auto& [key, said] : said_) texts.emplace(key, said.text);
    return texts;
  }
  std::map<std::string, std::string> origins() const {
    std::map<std::string, std::string> origins;
    for (const auto& [key, said] : said_) origins.emplace(key, said.origin);
    return origins;
  }

 private:
  struct Said {
    std::string text;
    std::string origin;
    size_t turn = 0;
  };
  Draft draft_;
  size_t turn_ = 0;
  std::map<std::string, Said, std::less<>> said_;  // by key
};

// The file `named`, and conf.d/*.toml beside it. Unless it is named, the system's, if it is there; none of an embedded
// daemon. As ReadConfigFile; INVALID_ARGUMENT too: a key that nobody knows, or that is a flag's to say.
Status ReadFiles(const std::string& named, bool embedded, Reading& reading);

// ARRAYBRIDGED_*. INVALID_ARGUMENT: one that nobody knows.
Status ReadEnvironment(Reading& reading);

// "NAME=VALUE", of one of the limits.
Status ReadLimitFlag(std::string_view text, Reading& reading);

}  // namespace arraybridge

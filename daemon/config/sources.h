// Reads the sources of the configuration: files, the environment, and flags. Each is read through the table of
// settings, the weakest source first; a later text replaces an earlier one.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "daemon/config/setting.h"

namespace arraybridge {

inline constexpr char kSystemConfigFile[] = "/etc/arraybridge/arraybridged.toml";

// The text that a source gives for a key.
struct Said {
  std::string text;
  std::string origin;   // the flag, the variable, or file, line and column
  size_t strength = 0;  // a later text has a higher one; 0: no source has the key
};
using SaidByKey = std::map<std::string, Said, std::less<>>;

// The texts that have been read so far.
struct Reading {
  Draft draft;
  SaidByKey said;
  size_t taken = 0;  // number of texts

  // `key` is the setting's key, or a key in a `table` that an operator has named. INVALID_ARGUMENT names the origin.
  Status Take(const Setting& setting, const std::string& key, const std::string& table, std::string_view text,
              const std::string& origin);

  const Said& Of(std::string_view key) const;
  // The origin of a key as the beginning of a message; `otherwise` if no source has the key.
  std::string Where(std::string_view key, const std::string& otherwise = "") const;
};

// Reads the file `named` and conf.d/*.toml beside it. If `named` is empty, reads the system's file if it exists and the
// daemon is not embedded. Errors: those of ReadConfigFile; INVALID_ARGUMENT for a key that is unknown or that only a
// flag may set.
Status ReadFiles(const std::string& named, bool embedded, Reading& reading);

// Reads the variables ARRAYBRIDGED_*. INVALID_ARGUMENT: a variable is unknown.
Status ReadEnvironment(Reading& reading);

// Reads "NAME=VALUE" of a limit.
Status ReadLimitFlag(std::string_view text, Reading& reading);

}  // namespace arraybridge

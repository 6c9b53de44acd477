// The sources of the configuration: files, the environment, flags. Each is read through the table of settings, the
// weakest first; a later text replaces an earlier one.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "daemon/config/setting.h"

namespace arraybridge {

inline constexpr char kSystemConfigFile[] = "/etc/arraybridge/arraybridged.toml";

// The text of a key, as a source gives it.
struct Said {
  std::string text;
  std::string origin;   // the flag, the variable, or file, line and column
  size_t strength = 0;  // a later text has more; 0: no source has the key
};
using SaidByKey = std::map<std::string, Said, std::less<>>;

// The texts that were read so far.
struct Reading {
  Draft draft;
  SaidByKey said;
  size_t taken = 0;  // texts

  // `key` is the setting's own, or that of a `table` that an operator named. INVALID_ARGUMENT names the origin.
  Status Take(const Setting& setting, const std::string& key, const std::string& table, std::string_view text,
              const std::string& origin);

  const Said& Of(std::string_view key) const;
  // The origin of a key, to begin a message with; `otherwise` if no source has it.
  std::string Where(std::string_view key, const std::string& otherwise = "") const;
};

// The file `named`, and conf.d/*.toml beside it. Unless it is named, the system's file, if it exists and the daemon is
// not embedded. Errors as ReadConfigFile; INVALID_ARGUMENT too: a key that is unknown, or that only a flag may set.
Status ReadFiles(const std::string& named, bool embedded, Reading& reading);

// ARRAYBRIDGED_*. INVALID_ARGUMENT: an unknown one.
Status ReadEnvironment(Reading& reading);

// "NAME=VALUE" of a limit.
Status ReadLimitFlag(std::string_view text, Reading& reading);

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Reads the sources of the configuration: files, the environment, and flags. Each is read through the table of
// settings, the weakest source first; a later text replaces an earlier one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/setting.h"

namespace arraybridge::daemon {

inline constexpr char kSystemConfigFile[] = "/etc/arraybridge/arraybridged.toml";

// The text that a source gives for a key.
struct Given {
  std::string text;
  std::string origin;   // the flag, the variable, or file, line and column
  size_t strength = 0;  // a later text has a higher one; 0: no source has the key
};
using GivenByKey = std::map<std::string, Given, std::less<>>;

// The texts that have been read so far, and every error in them.
struct Reading {
  Draft draft;
  GivenByKey given;
  size_t taken = 0;  // number of texts
  std::vector<Status> errors;
  std::vector<std::string> doubtful;  // keys, and beginnings of keys, whose values are unknown because of an error

  // `key` is the setting's key, or a key in a `table` that an operator has named. A text that cannot be read is an
  // error.
  void Take(const Setting& setting, const std::string& key, const std::string& table, std::string_view text,
            const std::string& origin);
  // Adds an error about a key, or about all keys that begin with `key`.
  void Refuse(const std::string& key, Status error);
  // Whether the value of the key, or of one key that begins with it, is unknown because of an error.
  bool Doubts(std::string_view key) const;
  // The first error; AllErrors returns the others, too.
  Status Refused() const;

  const Given& Of(std::string_view key) const;
  // The origin of a key as the beginning of a message; `otherwise` if no source has the key.
  std::string Where(std::string_view key, const std::string& otherwise = "") const;
};

// Reads the file `named` and conf.d/*.toml beside it. If `named` is empty, reads the system's file if it exists and the
// daemon is not embedded. Errors: those of ReadConfigFile; a key that is unknown or that only a flag may set.
void ReadFiles(const std::string& named, bool embedded, Reading& reading);

// Reads the variables ARRAYBRIDGED_*. Error: a variable is unknown.
void ReadEnvironment(Reading& reading);

// Reads "NAME=VALUE" of a limit.
void ReadLimitFlag(std::string_view text, Reading& reading);

// The messages of a status that Reading::Refused returned.
std::vector<std::string> AllErrors(const Status& refused);

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
// The log's interface: levels and a format string. Only log.cc knows the logging library. Only doors log; the broker
// reports by statuses.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/service/telemetry/log_topic.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// `level`: debug, info, warn, error, off. `format`: text; json (one object per line); journald (systemd's journal, with
// fields and MESSAGE_IDs, at `journal`); auto (journald if standard error is the journal's, text on a terminal,
// otherwise json). INVALID_ARGUMENT names the unknown value; UNAVAILABLE: the journal cannot be reached. An error
// changes nothing. Call it before threads start, or on a reload. Earlier lines are logged as text.
Status Start(std::string_view level, std::string_view format, const std::string& journal = kJournalSocket);

// Sets the maximum number of lines per second of one kind that clients can cause (log_throttle.h); 100 by default.
void SetLinesPerSecond(uint64_t lines);
uint64_t LinesPerSecond();

// The number of lines of this level, including dropped ones; lines of levels that are not logged do not count.
uint64_t Written(Level level);
// The number of lines that neither standard error nor the journal accepted: their reader is too slow, or a disk is
// full.
uint64_t Dropped();

// Thread-safe. Never waits: a line that standard error does not accept at once is dropped and counted in a later line.
void Write(Level level, const About& about, fmt::string_view format, fmt::format_args arguments);

template <class... Arguments>
void Debug(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kDebug, {}, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void Info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kInfo, {}, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void Warn(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kWarn, {}, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void Error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kError, {}, format, fmt::make_format_args(arguments...));
}

// The same, with fields for programs.
template <class... Arguments>
void Info(const About& about, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kInfo, about, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void Warn(const About& about, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kWarn, about, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void Error(const About& about, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kError, about, format, fmt::make_format_args(arguments...));
}

}  // namespace arraybridge::daemon::log

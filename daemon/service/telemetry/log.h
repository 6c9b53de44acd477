// The log, as its users see it: levels and a format string. Only log.cc knows what writes it, and only doors log: the
// broker explains itself in statuses.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/service/telemetry/log_topic.h"
#include "proto/boundary/result.h"

namespace arraybridge::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// `level`: debug, info, warn, error, off. `format`: text; json (an object a line); journald (systemd's journal, with
// fields and MESSAGE_IDs, at `journal`); auto (journald if standard error is the journal's, text on a terminal, else
// json). INVALID_ARGUMENT names what is unknown, UNAVAILABLE the journal: then nothing changes. Call it before threads
// start, or on a reload; what is logged before goes out as text.
Status Start(std::string_view level, std::string_view format, const std::string& journal = kJournalSocket);

// How many lines a second there may be of one kind that strangers cause at will (log_throttle.h); 100 if nobody says.
void SetLinesPerSecond(uint64_t lines);
uint64_t LinesPerSecond();

// So many lines of this level there were, dropped ones too; of levels that are not logged there are none.
uint64_t Written(Level level);

// Thread-safe. Never waits: a line that standard error does not take at once is dropped, and counted in a later one.
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

// The same, for programs too.
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

}  // namespace arraybridge::log

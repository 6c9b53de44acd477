// SPDX-License-Identifier: Apache-2.0
#define SPDLOG_FMT_EXTERNAL
#include "daemon/service/telemetry/log.h"

#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "daemon/service/telemetry/log_journal.h"
#include "proto/boundary/text.h"

namespace arraybridge::daemon::log {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z %l %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%&"message":"%*"})";

// The subject of the line that this thread is writing, for which spdlog has no field.
thread_local const About* t_about = nullptr;

void AppendEscaped(std::string_view text, spdlog::memory_buf_t& out) {
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
      continue;
    }
    out.push_back(c);
  }
}

// Formats the subject of the line as members of a JSON object.
class AboutFields final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    if (t_about == nullptr || t_about->topic == Topic::kOther) return;
    Append("event", FactsOf(t_about->topic).name, out);
    for (const auto& [name, value] : t_about->fields) Append(name, value, out);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<AboutFields>(); }

 private:
  static void Append(std::string_view name, std::string_view value, spdlog::memory_buf_t& out) {
    fmt::format_to(std::back_inserter(out), "\"{}\":\"", name);
    AppendEscaped(Printable(std::string(value)), out);
    fmt::format_to(std::back_inserter(out), "\",");
  }
};

// Formats the message as the content of a JSON string, so that text from clients stays inside the quotes.
class EscapedMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    AppendEscaped({message.payload.data(), message.payload.size()}, out);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<EscapedMessage>(); }
};

std::atomic<uint64_t>& DroppedLines() {
  static std::atomic<uint64_t> lines{0};
  return lines;
}

// Writes to standard error without waiting for its reader: if the reader is too slow, or its disk is full, lines are
// dropped and their number is logged later.
class PatientSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if ((dropped_ > 0 && !TellDropped()) || !WriteLine(message)) {
      ++dropped_;
      DroppedLines().fetch_add(1, std::memory_order_relaxed);
    }
  }
  void flush_() override {}

 private:
  bool TellDropped() {
    const std::string text = fmt::format("{} lines were dropped: the log did not accept them", dropped_);
    if (!WriteLine({"arraybridged", spdlog::level::warn, text})) return false;
    dropped_ = 0;
    return true;
  }

  // A pipe that is ready accepts PIPE_BUF bytes at once, so a longer line is truncated.
  bool WriteLine(spdlog::details::log_msg message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    while (line.size() > PIPE_BUF && message.payload.size() > 0) {
      message.payload = {message.payload.data(), message.payload.size() / 2};
      line.clear();
      formatter_->format(message, line);
    }
    pollfd reader{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&reader, 1, 0) != 1 || reader.revents != POLLOUT) return false;
    return WriteAll({line.data(), line.size()});
  }

  // A full disk accepts the beginning of a line. The next line then starts on a line of its own.
  bool WriteAll(std::string_view line) {
    if (torn_ && ::write(STDERR_FILENO, "\n", 1) != 1) return false;
    torn_ = false;
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written < 0) return false;
    torn_ = static_cast<size_t>(written) < line.size();
    return !torn_;
  }

  uint64_t dropped_ = 0;
  bool torn_ = false;
};

std::optional<spdlog::level::level_enum> LevelNamed(std::string_view name) {
  if (name == "debug") return spdlog::level::debug;
  if (name == "info") return spdlog::level::info;
  if (name == "warn") return spdlog::level::warn;
  if (name == "error") return spdlog::level::err;
  if (name == "off") return spdlog::level::off;
  return std::nullopt;
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      break;
  }
  return spdlog::level::off;
}

// Does not use spdlog's registry: there is one logger, created at first use.
spdlog::logger& Logger() {
  static spdlog::logger logger = [] {
    spdlog::logger made("arraybridged", std::make_shared<PatientSink>());
    made.set_pattern(kTextPattern);
    return made;
  }();
  return logger;
}

std::atomic<uint64_t>& CountOf(Level level) {
  static std::array<std::atomic<uint64_t>, static_cast<size_t>(Level::kOff) + 1> counts{};
  return counts[static_cast<size_t>(level)];
}

std::atomic<uint64_t>& LineRate() {
  static std::atomic<uint64_t> lines{100};
  return lines;
}

int PriorityOf(Level level) {
  constexpr int kErrorPriority = 3;
  constexpr int kWarningPriority = 4;
  constexpr int kInfoPriority = 6;
  constexpr int kDebugPriority = 7;
  if (level == Level::kError) return kErrorPriority;
  if (level == Level::kWarn) return kWarningPriority;
  return level == Level::kInfo ? kInfoPriority : kDebugPriority;
}

// The journal for the lines; null: lines go to standard error.
struct ToJournal {
  std::mutex mutex;
  std::unique_ptr<Journal> journal;
};
ToJournal& TheJournal() {
  static ToJournal to;
  return to;
}

// Returns null if the journal is not wanted. With format auto, a missing journal socket is not an error, because
// systemd reads standard error too.
Result<std::unique_ptr<Journal>> JournalFor(std::string_view format, const std::string& path) {
  const bool found = format == "auto" && Journal::IsStandardError();
  if (format != "journald" && !found) return std::unique_ptr<Journal>();
  auto journal = Journal::At(path);
  if (!journal.ok() && found) return std::unique_ptr<Journal>();
  return journal;
}

}  // namespace

Status Start(std::string_view level, std::string_view format, const std::string& journal) {
  const auto threshold = LevelNamed(level);
  if (!threshold) return InvalidArgument("log level '", level, "' is unknown: debug, info, warn, error, off");
  if (format != "auto" && format != "text" && format != "json" && format != "journald") {
    return InvalidArgument("log format '", format, "' is unknown: auto, text, json, journald");
  }
  AB_ASSIGN_OR_RETURN(auto opened, JournalFor(format, journal));
  const bool json = format == "json" || (format == "auto" && ::isatty(STDERR_FILENO) == 0);
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<EscapedMessage>('*').add_flag<AboutFields>('&').set_pattern(json ? kJsonPattern : kTextPattern);
  Logger().set_formatter(std::move(formatter));
  Logger().set_level(*threshold);
  const std::lock_guard lock(TheJournal().mutex);
  TheJournal().journal = std::move(opened);
  return Ok();
}

void SetLinesPerSecond(uint64_t lines) { LineRate().store(lines, std::memory_order_relaxed); }
uint64_t LinesPerSecond() { return LineRate().load(std::memory_order_relaxed); }

uint64_t Written(Level level) { return CountOf(level).load(std::memory_order_relaxed); }
uint64_t Dropped() { return DroppedLines().load(std::memory_order_relaxed); }

void Write(Level level, const About& about, fmt::string_view format, fmt::format_args arguments) {
  const auto threshold = ToSpdlog(level);
  if (!Logger().should_log(threshold)) return;
  CountOf(level).fetch_add(1, std::memory_order_relaxed);
  const std::string text = Printable(fmt::vformat(format, arguments));
  {
    ToJournal& to = TheJournal();
    const std::lock_guard lock(to.mutex);
    if (to.journal != nullptr) {
      if (!to.journal->Write(PriorityOf(level), text, about)) DroppedLines().fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  t_about = &about;
  Logger().log(threshold, spdlog::string_view_t(text));
  t_about = nullptr;
}

}  // namespace arraybridge::daemon::log

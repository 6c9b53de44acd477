// A Journal is systemd's, spoken to in its native protocol: one datagram a line, with fields that journalctl finds it
// by.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/service/telemetry/log_topic.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::log {

// Used by one thread at a time.
class Journal {
 public:
  // UNAVAILABLE: nobody listens at this path.
  static Result<std::unique_ptr<Journal>> At(const std::string& path);
  // Whether standard error is the journal's, as $JOURNAL_STREAM says.
  static bool IsStandardError();

  // `priority`: syslog's, 0 to 7. Never waits: what the journal does not take at once is dropped, and counted in a
  // later line. A message is cut to what fits into a datagram.
  void Write(int priority, std::string_view message, const About& about);

 private:
  explicit Journal(UniqueFd socket) : socket_(std::move(socket)) {}
  bool Send(int priority, std::string_view message, const About& about);

  UniqueFd socket_;  // connected
  uint64_t dropped_ = 0;
};

}  // namespace arraybridge::log

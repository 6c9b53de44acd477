// SPDX-License-Identifier: Apache-2.0
// A Journal writes to systemd's journal in its native protocol: one datagram per line, with fields for journalctl.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/service/telemetry/log_topic.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon::log {

// Used by one thread at a time.
class Journal {
 public:
  // UNAVAILABLE: no process listens at this path.
  static Result<std::unique_ptr<Journal>> At(const std::string& path);
  // Whether standard error is connected to the journal, according to $JOURNAL_STREAM.
  static bool IsStandardError();

  // `priority`: a syslog priority, 0 to 7. Never waits: a line that the journal does not accept at once is dropped and
  // counted in a later line; false: this line was. A message is truncated to the size of a datagram.
  bool Write(int priority, std::string_view message, const About& about);

 private:
  explicit Journal(UniqueFd socket) : socket_(std::move(socket)) {}
  bool Send(int priority, std::string_view message, const About& about);

  UniqueFd socket_;  // connected
  uint64_t dropped_ = 0;
};

}  // namespace arraybridge::daemon::log

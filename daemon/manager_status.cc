// SPDX-License-Identifier: Apache-2.0
#include "daemon/manager_status.h"

#include <cstdlib>
#include <utility>

#include "daemon/service/system/notify.h"
#include "daemon/service/telemetry/size_text.h"

namespace arraybridge::daemon {
namespace {

std::string Counted(uint64_t number, const char* what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

}  // namespace

ManagerStatus::ManagerStatus(const Broker& broker, const Verbs& verbs)
    : broker_(broker), verbs_(verbs), wanted_(std::getenv("NOTIFY_SOCKET") != nullptr) {}

std::string ManagerStatus::Line() const {
  const Snapshot now = broker_.TakeSnapshot();
  return std::string(verbs_.draining() ? "draining: " : "serving: ") + Counted(now.sessions, "session") + ", " +
         Counted(now.shares, "share") + ", " + SizeText(now.charged_bytes) + (trouble_.empty() ? "" : "; " + trouble_);
}

void ManagerStatus::SayReady(std::string trouble) {
  if (!wanted_) return;
  trouble_ = std::move(trouble);
  status_line_ = Line();
  next_ = std::chrono::steady_clock::now() + kEvery;
  NotifyManager("READY=1\nSTATUS=" + status_line_);
}

void ManagerStatus::NotifyIfChanged() {
  const auto now = std::chrono::steady_clock::now();
  if (!wanted_ || now < next_) return;
  next_ = now + kEvery;
  std::string line = Line();
  if (line == status_line_) return;
  status_line_ = std::move(line);
  NotifyManager("STATUS=" + status_line_);
}

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/reloader.h"

#include <time.h>

#include <string>
#include <vector>

#include "daemon/service/system/notify.h"
#include "daemon/service/telemetry/log.h"

namespace arraybridge::daemon {
namespace {

std::string Listed(const std::vector<std::string>& keys) {
  std::string list;
  for (const std::string& key : keys) list += (list.empty() ? "" : ", ") + key;
  return list;
}

// systemd compares the time of the following READY with this time, on its own clock.
std::string ReloadingState() {
  constexpr uint64_t kMicrosecondsPerSecond = 1'000'000;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t microseconds =
      static_cast<uint64_t>(now.tv_sec) * kMicrosecondsPerSecond + static_cast<uint64_t>(now.tv_nsec) / 1000;
  return "RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds);
}

}  // namespace

Result<Reloaded> Reloader::Reload() {
  NotifyManager(ReloadingState());
  auto reloaded = ReloadConfig(argc_, argv_, &running_);
  metrics_.CountReload(reloaded.ok());
  if (!reloaded.ok()) {
    // Only the first error: --check-config prints all of them.
    log::Error(log::Topic::kReloadRefused, "reload refused, the configuration is unchanged: {}",
               reloaded.status().message());
    status_.SayReady("the last reload was refused: " + reloaded.status().message());
    return reloaded;
  }
  Adopt(*reloaded);
  status_.SayReady();
  return reloaded;
}

void Reloader::Adopt(const Reloaded& reloaded) {
  const Config& config = running_.config;
  // Both settings were checked when they were read; the journal may be missing.
  const Status started = log::Start(config.log_level, config.log_format, config.journal);
  log::SetLinesPerSecond(config.log_lines_per_second);
  if (!started.ok()) log::Error("the log settings are unchanged: {}", started.message());
  admin_.SetAdmins(config.admins);
  const Broker::Adopted adopted = verbs_.sessions.ConfigurationChanged();
  log::Info(log::Topic::kReloaded, "reloaded: {}",
            reloaded.changed.empty() ? "nothing changed" : "changed " + Listed(reloaded.changed));
  if (!adopted.without_right.empty()) {
    log::Warn("reloaded: ended {} sessions that used a namespace without a right to it", adopted.without_right.size());
  }
  if (adopted.withdrawn > 0) {
    log::Warn("reloaded: withdrew {} shares of namespaces that no user can name any more", adopted.withdrawn);
  }
  if (!reloaded.kept.empty())
    log::Warn(log::Topic::kKeptUntilRestart, "reloaded, but kept until a restart: {}", Listed(reloaded.kept));
}

}  // namespace arraybridge::daemon

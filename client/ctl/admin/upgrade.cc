// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <ostream>
#include <string>
#include <thread>

#include "client/ctl/admin/admin.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenAttempts{20};

// Waits for the daemon that follows the life `ended`.
Result<v1::GetRecoveryResponse> AwaitNext(const std::string& path, const v1::UpgradeResponse& ended,
                                          std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  Status last = Unavailable("the daemon has not ended yet");
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) {
      return DeadlineExceeded("life ", ended.life(),
                              " of the broker was asked to end, but no later one has answered within ", timeout.count(),
                              " ms (", last.message(),
                              "): the log of the daemon and of the process that starts it has the reason");
    }
    v1::GetRecoveryResponse next;
    const auto connection = AdminConnection::To(path, left);
    last = connection.ok() ? (*connection)->Ask(&v1::Admin::Stub::GetRecovery, v1::GetRecoveryRequest(), &next)
                           : connection.status();
    const bool is_other = next.broker_id() != ended.broker_id();
    if (last.ok() && (is_other || next.life().number() > ended.life())) return next;
    std::this_thread::sleep_for(std::min(kBetweenAttempts, left));
  }
}

Status PrintUpgraded(const v1::UpgradeResponse& ended, const v1::GetRecoveryResponse& next, const Options& options,
                     std::ostream& out) {
  if (!IsJson(options)) {
    Table table({"DAEMON", "VERSION", "LIFE"}, StyleOf(options));
    table.Add({"before", ended.version(), std::to_string(ended.life())});
    table.Add({"now", next.version(), std::to_string(next.life().number())});
    table.Print(out, options.header);
    return Ok();
  }
  std::string json;
  JsonWriter writer(options.output == Output::kJson, &json);
  const auto add = [&writer](const char* which, const std::string& version, uint64_t life) {
    writer.Key(which).Open('{');
    writer.Key("version").Text(version);
    writer.Key("life").Number(static_cast<int64_t>(life));
    writer.Close('}');
  };
  writer.Open('{');
  add("before", ended.version(), ended.life());
  add("now", next.version(), next.life().number());
  writer.Close('}');
  out << json << '\n';
  return Ok();
}

}  // namespace

Status Upgrade(AdminConnection& connection, const Options& options, const AdminOptions&, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto path, FindBroker(options.address, "admin.sock"));
  v1::UpgradeResponse ended;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::Upgrade, v1::UpgradeRequest(), &ended));
  AB_ASSIGN_OR_RETURN(const auto next, AwaitNext(path, ended, options.timeout));
  AB_RETURN_IF_ERROR(PrintUpgraded(ended, next, options, out));
  if (next.broker_id() != ended.broker_id()) {
    return FailedPrecondition("another broker answers, which has nothing of the one that ended");
  }
  if (next.life().lost_shares() == 0) return Ok();
  return FailedPrecondition(next.life().lost_shares(), " shares were lost; arraybridgectl info --lost names them");
}

}  // namespace arraybridge::ctl

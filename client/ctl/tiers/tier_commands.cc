// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/tiers/tier_commands.h"

#include <ostream>
#include <string>
#include <utility>

#include "client/ctl/output/print.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {
namespace {

using Action = v1::TierRequest::Action;

Result<v1::TierResponse> Ask(Connection& connection, const Options& options, const ShareArgument& share,
                             Action action) {
  v1::TierRequest request;
  request.set_namespace_(options.ns);
  request.set_name(share.name);
  request.set_generation(share.generation);
  request.set_action(action);
  return connection.Tier(request);
}

// All parts of the list.
Result<v1::TierResponse> List(Connection& connection, const Options& options) {
  v1::TierResponse all;
  v1::TierRequest request;
  request.set_namespace_(options.ns);
  request.set_action(v1::TierRequest::LIST);
  do {
    AB_ASSIGN_OR_RETURN(auto part, connection.Tier(request));
    request.set_after(part.next());
    all.mutable_shares()->MergeFrom(part.shares());
    part.mutable_shares()->Swap(all.mutable_shares());
    all = std::move(part);
  } while (request.after() != 0);
  return all;
}

std::string ResidencyOf(const v1::TieredShare& share) {
  if (share.lost()) return "lost";
  return share.in_memory() ? "host" : "disk";
}

Status Done(Connection& connection, const Options& options, const ShareArgument& share, Action action, const char* word,
            std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto answer, Ask(connection, options, share, action));
  if (IsJson(options)) return PrintJson(answer, options, out);
  out << word << '\n';
  return Ok();
}

Table RowsOf(const v1::TierResponse& answer, const Options& options) {
  Table table({"NAME", "GENERATION", "SIZE", "RESIDENCY", "DURABLE"}, StyleOf(options));
  for (const v1::TieredShare& share : answer.shares()) {
    table.Add({share.name(), std::to_string(share.generation()), table.Size(share.bytes()), ResidencyOf(share),
               share.durable() ? "yes" : "no"});
  }
  return table;
}

}  // namespace

Status TierLs(Connection& connection, const Options& options, const ShareArgument&, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto answer, List(connection, options));
  if (IsJson(options)) return PrintJson(answer, options, out);
  RowsOf(answer, options).Print(out, options.header);
  if (options.output == Output::kCsv) return Ok();
  if (answer.disk_bytes_max() == 0) {
    out << "the broker has no directory for files: set tiers.directory in its configuration\n";
    return Ok();
  }
  out << "files: " << HumanSize(answer.disk_bytes(), options.unit) << " of "
      << HumanSize(answer.disk_bytes_max(), options.unit) << '\n';
  if (!answer.off().empty()) out << "off: " << answer.off() << '\n';
  return Ok();
}

Status TierOut(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  return Done(connection, options, share, v1::TierRequest::MOVE_OUT, "on disk", out);
}

Status TierIn(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  return Done(connection, options, share, v1::TierRequest::MOVE_IN, "in memory", out);
}

Status TierKeep(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  return Done(connection, options, share, v1::TierRequest::KEEP, "kept", out);
}

Status TierPin(Connection& connection, const Options& options, const PinArgument& pin, std::ostream& out) {
  v1::TierRequest request;
  request.set_namespace_(options.ns);
  request.set_name(pin.share.name);
  request.set_action(v1::TierRequest::PIN);
  request.set_pin(pin.pin == "hard"   ? v1::TierRequest::HARD
                  : pin.pin == "soft" ? v1::TierRequest::SOFT
                                      : v1::TierRequest::NONE);
  request.set_priority(pin.priority);
  AB_ASSIGN_OR_RETURN(const auto answer, connection.Tier(request));
  if (IsJson(options)) return PrintJson(answer, options, out);
  out << "pin: " << pin.pin << ", priority: " << pin.priority << '\n';
  return Ok();
}

Status TierVerify(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  if (!share.name.empty()) return Done(connection, options, share, v1::TierRequest::VERIFY, "right", out);
  AB_ASSIGN_OR_RETURN(const auto listed, List(connection, options));
  Status worst;
  uint64_t right = 0;
  for (const v1::TieredShare& each : listed.shares()) {
    const auto checked = Ask(connection, options, {each.name(), each.generation()}, v1::TierRequest::VERIFY);
    if (checked.ok()) ++right;
    if (!checked.ok()) out << each.name() << ": " << checked.status().message() << '\n';
    if (worst.ok()) worst = checked.status();
  }
  out << right << " of " << listed.shares_size() << " files are right\n";
  return worst;
}

}  // namespace arraybridge::ctl

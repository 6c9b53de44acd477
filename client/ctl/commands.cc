// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/commands.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <ostream>
#include <string>
#include <utility>

#include "client/ctl/born/born_facts.h"
#include "client/ctl/doctor/doctor.h"
#include "client/ctl/output/print.h"
#include "proto/boundary/environment.h"
#include "proto/boundary/frame.h"

namespace arraybridge::ctl {
namespace {

// True if a Broker() in Python would start a broker: none runs, and no address is given.
bool IsYetToStart(const Options& options, const Result<std::string>& socket) {
  const bool named = !options.address.empty() || !Environment("ARRAYBRIDGE_ADDRESS").empty();
  return !named && socket.ok() && ::access(socket->c_str(), F_OK) != 0;
}

}  // namespace

Status PrintJson(const google::protobuf::Message& message, bool lines, std::ostream& out) {
  std::string json;
  JsonWriter(!lines, &json).Object(message);
  out << json << '\n';
  return Ok();
}

Result<std::unique_ptr<Connection>> Connect(const Options& options) {
  const auto path = FindBroker(options.address);
  if (!path.ok()) return Status(path.status()).Because(kUsageReason);
  return Connection::To(*path, options.timeout, options.token);
}

Status Version(const Options& options, std::ostream& out) {
  const auto connection = Connect(options);
  const auto info =
      connection.ok() ? (*connection)->GetServerInfo() : Result<v1::GetServerInfoResponse>(connection.status());
  Table table({"WHAT", "VERSION", "PROTOCOL"}, StyleOf(options));
  table.Add({"arraybridgectl", ARRAYBRIDGE_VERSION, std::to_string(kProtocolVersion)});
  if (info.ok())
    table.Add({"arraybridged", info->version(), Concat(info->protocol_min(), " to ", info->protocol_max())});
  if (!IsJson(options)) {
    table.Print(out, options.header);
    if (!info.ok()) out << "the broker does not answer: " << info.status().message() << '\n';
    return Ok();
  }
  std::string json;
  JsonWriter writer(options.output == Output::kJson, &json);
  writer.Open('{');
  writer.Key("version").Text(ARRAYBRIDGE_VERSION);
  writer.Key("protocol").Number(kProtocolVersion);
  if (info.ok()) {
    writer.Key("broker").Open('{');
    writer.Key("version").Text(info->version());
    writer.Key("protocol_min").Number(info->protocol_min());
    writer.Key("protocol_max").Number(info->protocol_max());
    writer.Close('}');
  }
  writer.Close('}');
  out << json << '\n';
  return Ok();
}

Status Ping(Connection& connection, const Options& options, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto info, connection.GetServerInfo());
  if (info.draining()) return Unavailable("the broker is draining");
  if (IsJson(options)) return PrintJson(info, options, out);
  out << "ok\n";
  return Ok();
}

Status ShowStats(Connection& connection, const Options& options, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto stats, connection.GetStats());
  if (IsJson(options)) return PrintJson(stats, options, out);
  PrintStats(stats, StyleOf(options), out, options.header);
  return Ok();
}

Status Doctor(const Options& options, const DoctorWishes& wishes, std::ostream& out) {
  const bool with_python = !Environment("ARRAYBRIDGE_PYTHON").empty() || !wishes.frameworks.empty();
  const auto socket = FindBroker(options.address);
  const bool none_yet = with_python && IsYetToStart(options, socket);
  std::vector<Finding> findings = ExamineHost(socket.ok() && !none_yet ? *socket : "");
  const auto add = [&findings](std::vector<Finding> more) { std::ranges::move(more, std::back_inserter(findings)); };
  add(ExamineDriver(wishes.cuda_driver));
  if (none_yet) {
    add({{"broker", Health::kNote, "none runs for this user: the first Broker() starts one", ""}});
  } else {
    const auto connection = Connect(options);
    const auto info =
        connection.ok() ? (*connection)->GetServerInfo() : Result<v1::GetServerInfoResponse>(connection.status());
    add(ExamineBroker(info, socket.ok() ? *socket : ""));
    if (info.ok()) add(ExamineBorn(**connection));
  }
  if (with_python) add(ExaminePython(wishes.frameworks));
  PrintFindings(findings, StyleOf(options), out, options.header);
  const auto problems = std::ranges::count(findings, Health::kProblem, &Finding::health);
  if (problems == 0) return Ok();
  return FailedPrecondition(problems, problems == 1 ? " problem" : " problems");
}

}  // namespace arraybridge::ctl

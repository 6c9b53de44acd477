#include "client/ctl/commands.h"

#include <google/protobuf/util/json_util.h>

#include <ostream>
#include <utility>

#include "client/ctl/doctor.h"
#include "client/ctl/print.h"

namespace arraybridge::ctl {
namespace {

Form FormOf(const Options& options) { return options.output == Output::kCsv ? Form::kCsv : Form::kPeople; }

Status PrintAnswer(const google::protobuf::Message& message, const Options& options, std::ostream& out) {
  return PrintJson(message, options.output == Output::kJsonl, out);
}

template <class Rows>
Status PrintLines(const Rows& rows, std::ostream& out) {
  for (const auto& row : rows) AB_RETURN_IF_ERROR(PrintJson(row, true, out));
  return Ok();
}

Status PrintLines(v1::ListRequest::Kind kind, const v1::ListResponse& answer, std::ostream& out) {
  if (kind == v1::ListRequest::SESSIONS) return PrintLines(answer.sessions(), out);
  if (kind == v1::ListRequest::LEASES) return PrintLines(answer.leases(), out);
  if (kind == v1::ListRequest::NAMESPACES) return PrintLines(answer.namespaces(), out);
  if (kind == v1::ListRequest::DEVICES) return PrintLines(answer.devices(), out);
  return PrintLines(answer.shares(), out);
}

Result<v1::ListRequest::Kind> KindOf(const std::string& what) {
  if (what == "shares") return v1::ListRequest::SHARES;
  if (what == "sessions") return v1::ListRequest::SESSIONS;
  if (what == "leases") return v1::ListRequest::LEASES;
  if (what == "namespaces") return v1::ListRequest::NAMESPACES;
  if (what == "devices") return v1::ListRequest::DEVICES;
  return InvalidArgument("'", what, "' is none of shares, sessions, leases, namespaces, devices");
}

}  // namespace

Status PrintJson(const google::protobuf::Message& message, bool lines, std::ostream& out) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = !lines;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return Internal("the answer cannot be written as JSON: ", status.ToString());
  out << json << (lines ? "\n" : "");
  return Ok();
}

Status Ping(Connection& connection, const Options& options, std::ostream& out) {
  const auto info = connection.GetServerInfo();
  if (!info.ok()) return info.status();
  if (info->draining()) return Unavailable("the broker drains");
  if (IsJson(options)) return PrintAnswer(*info, options, out);
  out << "ok\n";
  return Ok();
}

Status Info(Connection& connection, const Options& options, std::ostream& out) {
  const auto info = connection.GetServerInfo();
  if (!info.ok()) return info.status();
  if (IsJson(options)) return PrintAnswer(*info, options, out);
  PrintInfo(*info, FormOf(options), out, options.header);
  return Ok();
}

Status ShowStats(Connection& connection, const Options& options, std::ostream& out) {
  const auto stats = connection.GetStats();
  if (!stats.ok()) return stats.status();
  if (IsJson(options)) return PrintAnswer(*stats, options, out);
  PrintStats(*stats, FormOf(options), out, options.header);
  return Ok();
}

Status Doctor(Connection* connection, const Status& why, const Options& options, std::ostream& out) {
  std::vector<Finding> findings = ExamineHost();
  const auto info = connection == nullptr ? Result<v1::GetServerInfoResponse>(why) : connection->GetServerInfo();
  for (Finding& finding : ExamineBroker(info)) findings.push_back(std::move(finding));
  if (IsJson(options)) {
    PrintFindingsAsJson(findings, options.output == Output::kJsonl, out);
  } else {
    PrintFindings(findings, FormOf(options), out, options.header);
  }
  size_t problems = 0;
  for (const Finding& finding : findings) problems += finding.health == Health::kProblem ? 1 : 0;
  if (problems == 0) return Ok();
  return FailedPrecondition(problems, problems == 1 ? " problem" : " problems");
}

Status Top(Connection& connection, const Options& options, std::chrono::milliseconds interval,
           v1::GetStatsResponse* before, std::ostream& out) {
  const auto stats = connection.GetStats();
  if (!stats.ok()) return stats.status();
  const v1::GetStatsResponse earlier = std::exchange(*before, *stats);
  if (IsJson(options)) return PrintJson(*stats, true, out);
  PrintTop(*stats, earlier, interval, FormOf(options), out);
  if (options.output == Output::kCsv) return Ok();
  v1::ListRequest request;
  request.set_namespace_(options.ns);
  for (const auto kind : {v1::ListRequest::NAMESPACES, v1::ListRequest::SESSIONS}) {
    request.set_kind(kind);
    const auto answer = connection.List(request);
    if (!answer.ok()) return answer.status();
    out << '\n';
    PrintList(kind, *answer, Form::kPeople, out, options.header);
  }
  return Ok();
}

Status Ls(Connection& connection, const Options& options, const std::string& what, std::ostream& out) {
  const auto kind = KindOf(what);
  if (!kind.ok()) return kind.status();
  v1::ListRequest request;
  request.set_kind(*kind);
  request.set_namespace_(options.ns);
  const auto answer = connection.List(std::move(request));
  if (!answer.ok()) return answer.status();
  if (options.output == Output::kJsonl) return PrintLines(*kind, *answer, out);
  if (options.output == Output::kJson) return PrintAnswer(*answer, options, out);
  PrintList(*kind, *answer, FormOf(options), out, options.header);
  return Ok();
}

}  // namespace arraybridge::ctl

#include "client/ctl/commands.h"

#include <google/protobuf/util/json_util.h>

#include <ostream>

#include "client/ctl/doctor.h"
#include "client/ctl/print.h"

namespace arraybridge::ctl {
namespace {

// The answer itself, by protobuf's rules: 64-bit numbers are strings, bytes are base64, field names as in the .proto.
Status PrintJson(const google::protobuf::Message& message, std::ostream& out) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return Internal("the answer cannot be written as JSON: ", status.ToString());
  out << json;
  return Ok();
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

Status Ping(Connection& connection, const Options& options, std::ostream& out) {
  const auto info = connection.GetServerInfo();
  if (!info.ok()) return info.status();
  if (info->draining()) return Unavailable("the broker drains");
  if (options.output == Output::kJson) return PrintJson(*info, out);
  out << "ok\n";
  return Ok();
}

Status Info(Connection& connection, const Options& options, std::ostream& out) {
  const auto info = connection.GetServerInfo();
  if (!info.ok()) return info.status();
  if (options.output == Output::kJson) return PrintJson(*info, out);
  PrintInfo(*info, out, options.header);
  return Ok();
}

Status Doctor(Connection* connection, const Status& why, const Options& options, std::ostream& out) {
  std::vector<Finding> findings = ExamineHost();
  const auto info = connection == nullptr ? Result<v1::GetServerInfoResponse>(why) : connection->GetServerInfo();
  for (Finding& finding : ExamineBroker(info)) findings.push_back(std::move(finding));
  if (options.output == Output::kJson) {
    PrintFindingsAsJson(findings, out);
  } else {
    PrintFindings(findings, out, options.header);
  }
  size_t problems = 0;
  for (const Finding& finding : findings) problems += finding.health == Health::kProblem ? 1 : 0;
  if (problems == 0) return Ok();
  return FailedPrecondition(problems, problems == 1 ? " problem" : " problems");
}

Status Ls(Connection& connection, const Options& options, const std::string& what, std::ostream& out) {
  const auto kind = KindOf(what);
  if (!kind.ok()) return kind.status();
  v1::ListRequest request;
  request.set_kind(*kind);
  request.set_namespace_(options.ns);
  const auto answer = connection.List(std::move(request));
  if (!answer.ok()) return answer.status();
  if (options.output == Output::kJson) return PrintJson(*answer, out);
  PrintList(*kind, *answer, out, options.header);
  return Ok();
}

}  // namespace arraybridge::ctl

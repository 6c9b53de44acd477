#include "client/ctl/commands.h"

#include <google/protobuf/util/json_util.h>

#include <ostream>
#include <utility>

#include "client/ctl/doctor.h"
#include "client/ctl/print.h"

namespace arraybridge::ctl {
namespace {

Status PrintLines(v1::ListRequest::Kind kind, const v1::ListResponse& answer, std::ostream& out) {
  if (kind == v1::ListRequest::SESSIONS) return PrintJsonLines(answer.sessions(), out);
  if (kind == v1::ListRequest::LEASES) return PrintJsonLines(answer.leases(), out);
  if (kind == v1::ListRequest::NAMESPACES) return PrintJsonLines(answer.namespaces(), out);
  if (kind == v1::ListRequest::DEVICES) return PrintJsonLines(answer.devices(), out);
  return PrintJsonLines(answer.shares(), out);
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
  if (IsJson(options)) return PrintJson(*info, options, out);
  out << "ok\n";
  return Ok();
}

Status Info(Connection& connection, const Options& options, std::ostream& out) {
  const auto info = connection.GetServerInfo();
  if (!info.ok()) return info.status();
  if (IsJson(options)) return PrintJson(*info, options, out);
  PrintInfo(*info, FormOf(options), out, options.header);
  return Ok();
}

Status ShowStats(Connection& connection, const Options& options, std::ostream& out) {
  const auto stats = connection.GetStats();
  if (!stats.ok()) return stats.status();
  if (IsJson(options)) return PrintJson(*stats, options, out);
  PrintStats(*stats, FormOf(options), out, options.header);
  return Ok();
}

Status Doctor(Connection* connection, const Status& why, const std::string& socket, const Options& options,
              std::ostream& out) {
  std::vector<Finding> findings = ExamineHost(socket);
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

Status PrintListed(const std::string& what, const Options& options, const AskPage& ask, std::ostream& out) {
  const auto kind = KindOf(what);
  if (!kind.ok()) return kind.status();
  v1::ListRequest request;
  request.set_kind(*kind);
  request.set_namespace_(options.ns);
  v1::ListResponse answer;
  do {
    v1::ListResponse page;
    AB_RETURN_IF_ERROR(ask(request, &page));
    request.set_page_token(page.next_page_token());
    page.clear_next_page_token();
    answer.MergeFrom(page);
  } while (!request.page_token().empty());
  if (options.output == Output::kJsonl) return PrintLines(*kind, answer, out);
  if (options.output == Output::kJson) return PrintJson(answer, options, out);
  PrintList(*kind, answer, FormOf(options), out, options.header);
  return Ok();
}

Status Ls(Connection& connection, const Options& options, const std::string& what, std::ostream& out) {
  const auto ask = [&](const v1::ListRequest& request, v1::ListResponse* page) -> Status {
    auto all = connection.List(request);
    if (!all.ok()) return all.status();
    *page = *std::move(all);
    return Ok();
  };
  return PrintListed(what, options, ask, out);
}

}  // namespace arraybridge::ctl

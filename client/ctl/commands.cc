// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/commands.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>

#include "client/ctl/child.h"
#include "client/ctl/doctor/doctor.h"
#include "client/ctl/output/print.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

// Returns a path, or a bare name for $PATH.
std::string FindPython() {
  std::error_code failed;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", failed);
  while (!failed && folder.has_relative_path() && folder.filename() != "site-packages") folder = folder.parent_path();
  const auto found = folder.parent_path().parent_path().parent_path() / "bin/python3";  // above lib/pythonX.Y
  return folder.has_relative_path() && ::access(found.c_str(), X_OK) == 0 ? found.string() : "python3";
}

// Runs `python -m arraybridge` with these words, of which the first is its command, and options of this program.
// FAILED_PRECONDITION: it fails. `what` needs it, as errors name it.
Status RunPython(std::vector<std::string> words, const Options& options, const char* what) {
  // Without the working directory in the path: any user may have written to it.
  constexpr char kRun[] =
      "import sys; sys.path[:] = [path for path in sys.path if path]; import runpy; "
      "runpy.run_module('arraybridge', run_name='__main__', alter_sys=True)";
  const std::string python = FindPython();
  const std::string command = words.front();
  std::vector<std::string> all = {python, "-c", kRun, command};
  if (!options.address.empty()) all.push_back(Concat("--address=", options.address));
  if (IsJson(options)) all.emplace_back("--output=json");
  all.insert(all.end(), std::make_move_iterator(words.begin() + 1), std::make_move_iterator(words.end()));
  // Not as an argument, which all users can read.
  if (!options.token.empty()) ::setenv("ARRAYBRIDGE_TOKEN", options.token.c_str(), 1);
  const auto ended = RunChild(std::move(all));
  if (!ended.ok()) return Status(ended.status().code(), Concat(what, " needs Python: ", ended.status().message()));
  if (*ended == 0) return Ok();
  return FailedPrecondition(python, " -m arraybridge ", command, " found a problem, or this Python has no arraybridge ",
                            "(exit status ", *ended, ")");
}

}  // namespace

Style StyleOf(const Options& options) {
  constexpr Form kForms[] = {Form::kPeople, Form::kPeople, Form::kCsv, Form::kJson, Form::kJsonLines};  // as in Output
  return {kForms[static_cast<size_t>(options.output)], options.unit, options.output == Output::kWide};
}

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
  JsonWriter told(options.output == Output::kJson, &json);
  told.Open('{');
  told.Key("version").Text(ARRAYBRIDGE_VERSION);
  told.Key("protocol").Number(kProtocolVersion);
  if (info.ok()) {
    told.Key("broker").Open('{');
    told.Key("version").Text(info->version());
    told.Key("protocol_min").Number(info->protocol_min());
    told.Key("protocol_max").Number(info->protocol_max());
    told.Close('}');
  }
  told.Close('}');
  out << json << '\n';
  return Ok();
}

Status Ping(Connection& connection, const Options& options, std::ostream& out) {
  const auto info = connection.GetServerInfo();
  if (!info.ok()) return info.status();
  if (info->draining()) return Unavailable("the broker is draining");
  if (IsJson(options)) return PrintJson(*info, options, out);
  out << "ok\n";
  return Ok();
}

Status ShowStats(Connection& connection, const Options& options, std::ostream& out) {
  const auto stats = connection.GetStats();
  if (!stats.ok()) return stats.status();
  if (IsJson(options)) return PrintJson(*stats, options, out);
  PrintStats(*stats, StyleOf(options), out, options.header);
  return Ok();
}

Status Doctor(const Options& options, const std::string& cuda_driver, std::ostream& out) {
  const auto socket = FindBroker(options.address);
  std::vector<Finding> findings = ExamineHost(socket.ok() ? *socket : "");
  const auto connection = Connect(options);
  const auto info =
      connection.ok() ? (*connection)->GetServerInfo() : Result<v1::GetServerInfoResponse>(connection.status());
  for (Finding& finding : ExamineDriver(cuda_driver)) findings.push_back(std::move(finding));
  for (Finding& finding : ExamineBroker(info, socket.ok() ? *socket : "")) findings.push_back(std::move(finding));
  PrintFindings(findings, StyleOf(options), out, options.header);
  size_t problems = 0;
  for (const Finding& finding : findings) problems += finding.health == Health::kProblem ? 1 : 0;
  if (problems == 0) return Ok();
  return FailedPrecondition(problems, problems == 1 ? " problem" : " problems");
}

Status DoctorWithConversions(const Options& options) {
  if (options.output != Output::kTable && options.output != Output::kJson) {
    return InvalidArgument("--conversions prints a table or json").Because(kUsageReason);
  }
  return RunPython({"doctor"}, options, "--conversions");
}

Status Load(const Options& options, const LoadWishes& wishes) {
  if (options.output != Output::kTable && options.output != Output::kJson) {
    return InvalidArgument("load prints a table or json").Because(kUsageReason);
  }
  std::vector<std::string> words = {"load"};
  if (!wishes.name.empty()) words.push_back(Concat("--name=", wishes.name));
  if (!options.ns.empty()) words.push_back(Concat("--namespace=", options.ns));
  if (wishes.sha256) words.emplace_back("--sha256");
  if (wishes.replace) words.emplace_back("--replace");
  if (!wishes.device.empty()) words.push_back(Concat("--device=", wishes.device));
  words.emplace_back("--");
  words.insert(words.end(), wishes.files.begin(), wishes.files.end());
  return RunPython(std::move(words), options, "load");
}

}  // namespace arraybridge::ctl

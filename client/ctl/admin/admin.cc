// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/admin/admin.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <ostream>
#include <string_view>
#include <utility>

#include "client/ctl/output/print.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {
namespace {

using std::to_string;

void Fill(v1::NamespaceRef* of, const std::string& ns, const AdminOptions& admin) {
  of->set_namespace_(ns);
  if (admin.uid) of->set_uid(*admin.uid);
}

// "4096", "64KiB", "2MiB", "8GiB", "1TiB".
Result<uint64_t> ReadSize(std::string_view text) {
  constexpr std::pair<std::string_view, int> kSuffixes[] = {{"", 0},     {"B", 0},    {"KiB", 10},
                                                            {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  for (const auto& [name, shift] : kSuffixes) {
    if (error != std::errc() || unit != name) continue;
    if (number > std::numeric_limits<uint64_t>::max() >> shift) break;
    return number << shift;
  }
  return InvalidArgument("'", text, "' is not a size: use 4096, 64KiB, 2MiB, 8GiB, 1TiB, or default");
}

Status Print(const v1::NamespaceQuota& quota, const Options& options, std::ostream& out) {
  if (IsJson(options)) return PrintJson(quota, options, out);
  Table table({"NAMESPACE", "UID", "QUOTA", "CHARGED", "SET"}, StyleOf(options));
  table.Add({quota.of().namespace_(), quota.of().has_uid() ? to_string(quota.of().uid()) : "shared",
             table.Size(quota.quota_bytes()), table.Size(quota.charged_bytes()), quota.set() ? "yes" : "configured"});
  table.Print(out, options.header);
  return Ok();
}

// Prints the result of a command that has no answer beyond success.
template <class Answer>
Status Done(const Answer& answer, const Options& options, std::string_view text, std::ostream& out) {
  if (IsJson(options)) return PrintJson(answer, options, out);
  out << text << '\n';
  return Ok();
}

}  // namespace

Result<std::unique_ptr<AdminConnection>> AdminConnection::To(const std::string& path,
                                                             std::chrono::milliseconds timeout) {
  AB_ASSIGN_OR_RETURN(auto channel, ChannelTo(path));
  return std::unique_ptr<AdminConnection>(
      new AdminConnection(std::move(channel), std::chrono::system_clock::now() + timeout));
}

Result<std::unique_ptr<AdminConnection>> ConnectAdmin(const Options& options) {
  const auto path = FindBroker(options.address, "admin.sock");
  if (!path.ok()) return Status(path.status()).Because(kUsageReason);
  auto connection = AdminConnection::To(*path, options.timeout);
  if (connection.ok() || connection.status().code() != Code::kUnavailable) return connection;
  const auto serves = FindBroker(options.address);
  if (!serves.ok() || !ChannelTo(*serves).ok()) return connection;
  return Unavailable(
      "the broker at ", *serves, " is not administered: ", connection.status().message(),
      "; a broker that Python has started has no such socket, another one has it where server.admin says");
}

Status GetQuota(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  v1::GetQuotaRequest request;
  Fill(request.mutable_of(), admin.subject, admin);
  v1::NamespaceQuota quota;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::GetQuota, request, &quota));
  return Print(quota, options, out);
}

Status SetQuota(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  v1::SetQuotaRequest request;
  Fill(request.mutable_of(), admin.subject, admin);
  if (admin.bytes != "default") {
    AB_ASSIGN_OR_RETURN(const auto bytes, ReadSize(admin.bytes));
    request.set_bytes(bytes);
  }
  v1::NamespaceQuota quota;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::SetQuota, request, &quota));
  return Print(quota, options, out);
}

Status EndSession(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  v1::EndSessionRequest request;
  request.set_session(admin.session);
  v1::EndSessionResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::EndSession, request, &answer));
  return Done(answer, options, "ended", out);
}

Status Withdraw(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  v1::AdminWithdrawRequest request;
  Fill(request.mutable_of(), options.ns, admin);
  request.add_shares()->set_name(admin.subject);
  v1::AdminWithdrawResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::Withdraw, request, &answer));
  return Done(answer, options, "withdrawn", out);
}

Status Trim(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  v1::TrimRequest request;
  if (!admin.device.empty()) {
    v1::ListRequest devices;
    devices.set_kind(v1::ListRequest::DEVICES);
    v1::ListResponse listed;
    AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::List, devices, &listed));
    const auto found =
        std::ranges::find_if(listed.devices(), [&](const auto& one) { return IsDevice(one.device(), admin.device); });
    if (found == listed.devices().end())
      return NotFound("this broker serves no device '", admin.device, "'; see arraybridgectl ls devices");
    *request.mutable_device() = found->device();
  }
  v1::TrimResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::Trim, request, &answer));
  return Done(answer, options, Concat(answer.freed_bytes(), " bytes given back"), out);
}

Status Reload(AdminConnection& connection, const Options& options, const AdminOptions&, std::ostream& out) {
  v1::ReloadResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::Reload, v1::ReloadRequest(), &answer));
  if (IsJson(options)) return PrintJson(answer, options, out);
  for (const std::string& key : answer.changed()) out << "changed " << key << '\n';
  for (const std::string& key : answer.kept()) out << "kept until a restart: " << key << '\n';
  if (answer.changed().empty() && answer.kept().empty()) out << "nothing changed\n";
  return Ok();
}

Status Drain(AdminConnection& connection, const Options& options, const AdminOptions&, std::ostream& out) {
  v1::DrainResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::Drain, v1::DrainRequest(), &answer));
  return Done(answer, options, "draining", out);
}

Status Shutdown(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  v1::ShutdownRequest request;
  request.set_now(admin.now);
  v1::ShutdownResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::Shutdown, request, &answer));
  return Done(answer, options, "shutting down", out);
}

Status LsLost(AdminConnection& connection, const Options& options, const AdminOptions&, std::ostream& out) {
  v1::GetRecoveryResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::GetRecovery, v1::GetRecoveryRequest(), &answer));
  if (options.output == Output::kJsonl) return PrintJsonLines(answer.lost(), out);
  if (IsJson(options)) return PrintJson(answer, options, out);
  Table table({"NAMESPACE", "UID", "SHARE", "REASON"}, StyleOf(options));
  for (const v1::LostShare& lost : answer.lost()) {
    table.Add(
        {lost.of().namespace_(), lost.of().has_uid() ? to_string(lost.of().uid()) : "shared", lost.name(), lost.why()});
  }
  table.Print(out, options.header);
  return Ok();
}

Status ShowConfig(AdminConnection& connection, const Options& options, const AdminOptions&, std::ostream& out) {
  v1::GetConfigResponse answer;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::GetConfig, v1::GetConfigRequest(), &answer));
  if (options.output == Output::kJsonl) return PrintJsonLines(answer.values(), out);
  if (IsJson(options)) return PrintJson(answer, options, out);
  Table table({"KEY", "VALUE", "ORIGIN"}, StyleOf(options));
  for (const v1::ConfigValue& value : answer.values()) table.Add({value.key(), value.value(), value.origin()});
  table.Print(out, options.header);
  return Ok();
}

Status LsAll(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  const auto ask = [&](const v1::ListRequest& request, v1::ListResponse* page) {
    return connection.Ask(&v1::Admin::Stub::List, request, page);
  };
  return PrintListed(admin.listed, options, ask, out);
}

}  // namespace arraybridge::ctl

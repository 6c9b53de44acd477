#include "client/ctl/print.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <string>
#include <vector>

#include "client/ctl/table.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {
namespace {

using std::to_string;

// "float32[3,4]", and how many more there are.
std::string Arrays(const v1::ArraySpecs& specs) {
  if (specs.arrays().empty()) return "";
  const auto& first = specs.arrays(0);
  std::string text = first.dtype() + "[";
  for (int i = 0; i < first.shape_size(); ++i) text += (i == 0 ? "" : ",") + to_string(first.shape(i));
  text += "]";
  if (specs.arrays_size() > 1) text += Concat(" +", specs.arrays_size() - 1);
  return text;
}

std::string Written(v1::Immutability immutability) {
  return immutability == v1::IMMUTABILITY_ENFORCED ? "enforced" : "contract";
}

std::string OrGone(uint64_t session) { return session == 0 ? "gone" : to_string(session); }

Table Shares(const v1::ListResponse& answer) {
  Table table({"NAMESPACE", "NAME", "GENERATION", "SIZE", "ARRAYS", "LEASES", "AGE", "MAKER", "PID", "IMMUTABLE",
               "DEVICE", "KIND", "FENCE"});
  for (const auto& info : answer.shares()) {
    const auto& share = info.share();
    table.Add({share.namespace_(), share.name(), to_string(share.generation()), HumanSize(share.handle().size()),
               Arrays(share.specs()), to_string(info.leases()), HumanAge(info.age_ms()), OrGone(info.maker()),
               to_string(info.maker_process_id()), Written(share.immutability()), DeviceName(share.handle().device()),
               KindName(share.handle().kind()), share.fence().kind() == v1::Fence::DONE ? "done" : "event"});
  }
  return table;
}

Table Sessions(const v1::ListResponse& answer) {
  Table table({"SESSION", "CLIENT", "UID", "PID", "DOOR", "AGE", "LEASES", "ARENAS", "SIZE"});
  for (const auto& info : answer.sessions()) {
    table.Add({to_string(info.session()), info.client(), to_string(info.uid()), to_string(info.process_id()),
               info.door(), HumanAge(info.age_ms()), to_string(info.leases()), to_string(info.arenas()),
               HumanSize(info.arena_bytes())});
  }
  return table;
}

Table Leases(const v1::ListResponse& answer) {
  Table table({"LEASE", "SESSION", "NAMESPACE", "NAME", "GENERATION", "SIZE"});
  for (const auto& info : answer.leases()) {
    table.Add({to_string(info.lease()), to_string(info.session()), info.namespace_(), info.name(),
               to_string(info.generation()), HumanSize(info.size())});
  }
  return table;
}

Table Namespaces(const v1::ListResponse& answer) {
  Table table({"NAMESPACE", "UID", "QUOTA", "CHARGED", "SHARES", "SHARED"});
  for (const auto& info : answer.namespaces()) {
    table.Add({info.namespace_(), to_string(info.uid()), HumanSize(info.quota_bytes()), HumanSize(info.charged_bytes()),
               to_string(info.shares()), HumanSize(info.share_bytes())});
  }
  return table;
}

template <class DeviceInfos>
Table Devices(const DeviceInfos& devices) {
  Table table({"DEVICE", "KINDS", "CAPACITY", "ALLOCATED", "CACHED"});
  for (const v1::DeviceInfo& info : devices) {
    table.Add({DeviceName(info.device()), KindNames(info.kinds()), HumanSize(info.capacity_bytes()),
               HumanSize(info.allocated_bytes()), HumanSize(info.cached_bytes())});
  }
  return table;
}

Table TableOf(v1::ListRequest::Kind kind, const v1::ListResponse& answer) {
  if (kind == v1::ListRequest::SESSIONS) return Sessions(answer);
  if (kind == v1::ListRequest::LEASES) return Leases(answer);
  if (kind == v1::ListRequest::NAMESPACES) return Namespaces(answer);
  if (kind == v1::ListRequest::DEVICES) return Devices(answer.devices());
  return Shares(answer);
}

std::string_view HealthName(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kNote ? "note" : "problem";
}

}  // namespace

std::string DeviceName(const v1::Device& device) {
  if (device.type() == kDeviceCpu) return "cpu";
  const std::string kind = device.type() == kDeviceCuda ? "cuda" : Concat("device", device.type());
  return device.uuid().empty() ? Concat(kind, ":", device.id()) : Concat(kind, ":", device.uuid());
}

std::string KindName(int kind) {
  std::string name = v1::HandleKind_Name(static_cast<v1::HandleKind>(kind));
  if (name.empty()) return std::to_string(kind);  // of a broker newer than this program
  name.erase(0, std::string_view("HANDLE_KIND_").size());
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return name;
}

std::string KindNames(const google::protobuf::RepeatedField<int>& kinds) {
  std::string names;
  for (const int kind : kinds) names += (names.empty() ? "" : ",") + KindName(kind);
  return names;
}

void PrintFindings(const std::vector<Finding>& findings, std::ostream& out, bool with_header) {
  Table table({"WHAT", "HEALTH", "FINDING"});
  for (const Finding& finding : findings)
    table.Add({finding.what, std::string(HealthName(finding.health)), finding.text});
  table.Print(out, with_header);
}

void PrintFindingsAsJson(const std::vector<Finding>& findings, std::ostream& out) {
  google::protobuf::ListValue list;
  for (const Finding& finding : findings) {
    auto& fields = *list.add_values()->mutable_struct_value()->mutable_fields();
    fields["what"].set_string_value(finding.what);
    fields["health"].set_string_value(std::string(HealthName(finding.health)));
    fields["finding"].set_string_value(finding.text);
  }
  std::string json;
  if (google::protobuf::util::MessageToJsonString(list, &json).ok()) out << json << '\n';
}

void PrintInfo(const v1::GetServerInfoResponse& info, std::ostream& out, bool with_header) {
  Table table({"WHAT", "VALUE"});
  std::string capabilities;
  for (const auto& name : info.capabilities()) capabilities += (capabilities.empty() ? "" : ",") + name;
  const auto& limits = info.limits();
  table.Add({"version", info.version()});
  table.Add({"protocol", Concat(info.protocol_min(), " to ", info.protocol_max())});
  table.Add({"state", info.draining() ? "draining" : "serving"});
  table.Add({"uptime", HumanAge(info.uptime_ms())});
  table.Add({"boot id", info.boot_id()});
  table.Add({"capabilities", capabilities});
  for (const auto& device : info.devices()) {
    table.Add({"device " + DeviceName(device.device()),
               Concat(HumanSize(device.allocated_bytes()), " of ", HumanSize(device.capacity_bytes()), " allocated, ",
                      HumanSize(device.cached_bytes()), " of it cached, ", KindNames(device.kinds()))});
  }
  table.Add({"limit: frame", HumanSize(limits.frame_bytes_max())});
  table.Add({"limit: name", Concat(limits.name_bytes_max(), " bytes")});
  table.Add({"limit: arrays per share", to_string(limits.arrays_per_share_max())});
  table.Add({"limit: rank", to_string(limits.rank_max())});
  table.Add({"limit: metadata", HumanSize(limits.metadata_bytes_max())});
  table.Add({"limit: leases per session", to_string(limits.leases_per_session_max())});
  table.Add({"limit: names per request", to_string(limits.names_per_request_max())});
  table.Add({"limit: shares per namespace", to_string(limits.shares_per_namespace_max())});
  table.Add({"limit: wait", HumanAge(limits.request_timeout_max_ms())});
  table.Add({"limit: ticket lifetime", HumanAge(limits.ticket_lifetime_ms())});
  table.Print(out, with_header);
}

void PrintList(v1::ListRequest::Kind kind, const v1::ListResponse& answer, std::ostream& out, bool with_header) {
  TableOf(kind, answer).Print(out, with_header);
}

}  // namespace arraybridge::ctl

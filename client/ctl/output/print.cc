// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/print.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/ctl/output/table.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

using std::to_string;

// Empty for a device in service.
std::string OutOfService(const v1::DeviceInfo& device) {
  if (!device.out_of_service()) return {};
  const std::string why = WhyOutOfService(device);
  return Concat(", out of service", why.empty() ? "" : ": ", why);
}

// In tables for people the local time, "2026-11-24 14:03:59"; otherwise seconds since 1970.
std::string DateText(uint64_t unix_s, const Style& style) {
  if (!style.people()) return to_string(unix_s);
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm day{};
  ::localtime_r(&seconds, &day);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%F %T", &day);
  return text.data();
}

std::string LostName(const v1::LostShare& lost) {
  const std::string owner = lost.of().has_uid() ? Concat(" of user ", lost.of().uid()) : "";
  return Concat("'", lost.name(), "' in '", lost.of().namespace_(), "'", owner, ": ", lost.why());
}

void AddLife(Table& table, const v1::Life& life, const google::protobuf::RepeatedPtrField<v1::LostShare>& lost,
             const Style& style) {
  constexpr int kLostShown = 10;
  table.Add({"life", to_string(life.number())});
  table.Add({"life began", DateText(life.began_unix_s(), style)});
  if (life.number() > 1) {
    table.Add({"first life began", DateText(life.first_began_unix_s(), style)});
    table.Add({"last life ended by", life.last_end()});
    table.Add({"recovered", Concat(life.recovered_shares(), " shares, ", life.recovered_sessions(), " sessions, ",
                                   table.Size(life.recovered_bytes()))});
    table.Add({"lost", Concat(life.lost_shares(), " shares, ", life.lost_shares_total(), " in all lives",
                              life.lost_shares() > 0 && lost.empty() ? "; administrators see their names" : "")});
    for (int i = 0; i < std::min(lost.size(), kLostShown); ++i) table.Add({"lost share", LostName(lost[i])});
    table.Add({"damaged records", to_string(life.damaged_records())});
  }
  table.Add({"descriptors kept by", HolderName(life)});
  if (life.store_entries_max() == 0) return;
  table.Add(
      {"descriptor store", Concat(life.store_entries(), " of ", life.store_entries_max(), " entries, names of ",
                                  table.Size(life.store_name_bytes()), " of ", table.Size(life.store_name_bytes_max()),
                                  ", ", life.store_refused_total(), " refused")});
}

}  // namespace

std::string HolderName(const v1::Life& life) {
  switch (life.holder()) {
    case v1::HOLDER_KEEPER:
      return "the keeper";
    case v1::HOLDER_SERVICE_MANAGER:
      return "the service manager";
    case v1::HOLDER_ENDED:
      return "none: the keeper has ended";
    case v1::HOLDER_FULL:
      return "none: the descriptor store is full";
    default:
      return "none";
  }
}

std::string ArrayName(const v1::ArraySpec& spec) {
  std::string text = spec.dtype() + "[";
  for (int i = 0; i < spec.shape_size(); ++i) text += (i == 0 ? "" : ",") + to_string(spec.shape(i));
  return text + "]";
}

std::string TimeText(uint64_t time_ns, const Style& style) {
  if (!style.people()) return to_string(time_ns);
  constexpr uint64_t kSecond = 1'000'000'000;
  const auto seconds = static_cast<std::time_t>(time_ns / kSecond);
  std::tm day{};
  ::localtime_r(&seconds, &day);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%02d:%02d:%02d.%03d", day.tm_hour, day.tm_min, day.tm_sec,
                static_cast<int>(time_ns % kSecond / 1'000'000));
  return text.data();
}

std::string DeviceName(const v1::Device& device) {
  if (device.type() == kDeviceCpu) return "cpu";
  const std::string kind = device.type() == kDeviceCuda ? "cuda" : Concat("device", device.type());
  return device.uuid().empty() ? Concat(kind, ":", device.id()) : Concat(kind, ":", device.uuid());
}

std::string WhyOutOfService(const v1::DeviceInfo& device) {
  for (const v1::RefusedKind& refused : device.refused()) {
    if (refused.cause() == v1::REFUSAL_CAUSE_FAILED) return refused.why();
  }
  return {};
}

std::string EnumText(std::string name, std::string_view prefix, int number) {
  if (name.empty()) return to_string(number);  // of a broker newer than this program
  name.erase(0, prefix.size());
  return WordOf(std::move(name));
}

std::string KindName(int kind) {
  return kind == 0 ? "none" : EnumText(v1::HandleKind_Name(static_cast<v1::HandleKind>(kind)), "HANDLE_KIND_", kind);
}

std::string KindNames(const google::protobuf::RepeatedField<int>& kinds) {
  std::string names;
  for (const int kind : kinds) names += (names.empty() ? "" : ",") + KindName(kind);
  return names;
}

void PrintFindings(const std::vector<Finding>& findings, const Style& style, std::ostream& out, bool with_header) {
  Table table({"WHAT", "HEALTH", "FINDING", style.json() ? "MEND" : "MENDED BY"}, style);
  for (const auto& [what, health, text, mend] : findings)
    table.Add({what, std::string(kHealthNames[static_cast<size_t>(health)]), text, mend});
  table.Print(out, with_header);
}

void PrintInfo(const v1::GetServerInfoResponse& info, const google::protobuf::RepeatedPtrField<v1::LostShare>& lost,
               const Style& style, std::ostream& out, bool with_header) {
  Table table({"WHAT", "VALUE"}, style);
  std::string capabilities;
  for (const auto& name : info.capabilities()) capabilities += (capabilities.empty() ? "" : ",") + name;
  const auto& limits = info.limits();
  table.Add({"version", info.version()});
  table.Add({"protocol", Concat(info.protocol_min(), " to ", info.protocol_max())});
  table.Add({"state", info.draining() ? "draining" : "serving"});
  table.Add({"uptime", table.Age(info.uptime_ms())});
  if (info.exit_when_idle_ms() > 0) {
    table.Add({"ends when idle", Concat("after ", table.Age(info.exit_when_idle_ms()), "; after ",
                                        table.Age(info.linger_ms()), " while named arrays are unread")});
  }
  table.Add({"boot id", info.boot_id()});
  if (info.has_life()) AddLife(table, info.life(), lost, style);
  table.Add({"capabilities", capabilities});
  for (const auto& device : info.devices()) {
    table.Add({"device " + DeviceName(device.device()),
               Concat(table.Size(device.allocated_bytes()), " of ", table.Size(device.capacity_bytes()), " allocated, ",
                      table.Size(device.cached_bytes()), " of it cached, ",
                      device.kinds().empty() ? "shared as nothing" : KindNames(device.kinds()), OutOfService(device))});
  }
  table.Add({"limit: frame", table.Size(limits.frame_bytes_max())});
  table.Add({"limit: name", Concat(limits.name_bytes_max(), " bytes")});
  table.Add({"limit: arrays per share", to_string(limits.arrays_per_share_max())});
  table.Add({"limit: rank", to_string(limits.rank_max())});
  table.Add({"limit: metadata", table.Size(limits.metadata_bytes_max())});
  table.Add({"limit: leases per session", to_string(limits.leases_per_session_max())});
  table.Add({"limit: names per request", to_string(limits.names_per_request_max())});
  table.Add({"limit: shares per namespace", to_string(limits.shares_per_namespace_max())});
  table.Add({"limit: wait", table.Age(limits.request_timeout_max_ms())});
  table.Add({"limit: ticket lifetime", table.Age(limits.ticket_lifetime_ms())});
  table.Print(out, with_header);
}

void PrintStats(const v1::GetStatsResponse& stats, const Style& style, std::ostream& out, bool with_header) {
  Table table({"WHAT", "VALUE"}, style);
  const auto add = [&](const char* what, uint64_t value) { table.Add({what, to_string(value)}); };
  add("sessions", stats.sessions());
  add("leases", stats.leases());
  add("shares", stats.shares());
  add("shares, unread", stats.unread_shares());
  add("shares without a name", stats.withdrawn_shares());
  add("arenas", stats.arenas());
  add("arenas in quarantine", stats.dying_arenas());
  table.Add({"charged", table.Size(stats.charged_bytes())});
  add("tickets", stats.tickets());
  add("waiting requests", stats.waiting());
  add("hazard slots", stats.hazard_slots());
  table.Add({"withdrawn, kept by hazard slots", table.Size(stats.pinned_bytes())});
  add("pending fences", stats.pending_fences());
  add("lost fences, total", stats.lost_fences_total());
  add("sessions, total", stats.sessions_total());
  add("publishes, total", stats.publishes_total());
  add("forwards, total", stats.forwards_total());
  add("acquires, total", stats.acquires_total());
  add("refusals, total", stats.refusals_total());
  add("sessions cut, total", stats.sessions_cut_total());
  for (const auto& device : stats.devices()) {
    table.Add({"device " + DeviceName(device.device()),
               Concat(table.Size(device.allocated_bytes()), " of ", table.Size(device.capacity_bytes()), " allocated, ",
                      table.Size(device.quarantined_bytes()), " of it in quarantine", OutOfService(device))});
  }
  table.Print(out, with_header);
}

void PrintTop(const v1::GetStatsResponse& stats, const v1::GetStatsResponse& earlier,
              std::chrono::milliseconds interval, const Style& style, std::ostream& out) {
  const auto per_second = [&](uint64_t now, uint64_t then) -> std::string {
    if (earlier.sessions_total() == 0 || interval.count() <= 0 || now < then) return style.people() ? "-" : "";
    return to_string((now - then) * 1000 / static_cast<uint64_t>(interval.count()));
  };
  uint64_t capacity = 0;
  uint64_t allocated = 0;
  for (const auto& device : stats.devices()) {
    capacity += device.capacity_bytes();
    allocated += device.allocated_bytes() - device.cached_bytes();
  }
  Table table({"SESSIONS", "SHARES", "LEASES", "HAZARD SLOTS", "WAITING", "CHARGED", "IN USE", "CAPACITY",
               "PUBLISHES/S", "ACQUIRES/S", "REFUSALS/S"},
              style);
  table.Add({to_string(stats.sessions()), to_string(stats.shares()), to_string(stats.leases()),
             to_string(stats.hazard_slots()), to_string(stats.waiting()), table.Size(stats.charged_bytes()),
             table.Size(allocated), table.Size(capacity),
             per_second(stats.publishes_total(), earlier.publishes_total()),
             per_second(stats.acquires_total(), earlier.acquires_total()),
             per_second(stats.refusals_total(), earlier.refusals_total())});
  // In a stream of rows, only the first table has a header.
  table.Print(out, style.people() || earlier.sessions_total() == 0);
}

}  // namespace arraybridge::ctl

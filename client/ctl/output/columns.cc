// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/columns.h"

#include <array>
#include <cstdio>
#include <functional>

#include <arraybridge/bundle.h>

#include "client/ctl/born/born_facts.h"
#include "client/ctl/output/print.h"
#include "client/ctl/residency/residency.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {
namespace {

using v1::ChannelInfo;
using v1::DeviceInfo;
using v1::LeaseInfo;
using v1::ListRequest;
using v1::ListResponse;
using v1::NamespaceInfo;
using v1::SessionInfo;
using v1::ShareInfo;

// "model" for a bundle, otherwise "float32[3,4]", and how many more arrays there are; in wide tables all of them.
std::string Arrays(const v1::Share& share, bool wide) {
  const v1::ArraySpecs& specs = share.specs();
  if (!wide && share.structure() == Bundle::kStructure) return "model";
  std::string text;
  for (int i = 0; i < specs.arrays_size(); ++i) {
    if (i > 0 && !wide) return text + Concat(" +", specs.arrays_size() - 1);
    text += (i == 0 ? "" : " ") + ArrayName(specs.arrays(i));
  }
  return text;
}

Cell SessionOrGone(uint64_t session) { return session == 0 ? Cell::Text("gone") : Cell::Number(session); }

uint64_t Left(uint64_t all, uint64_t used) { return used < all ? all - used : 0; }

std::string Refused(const DeviceInfo& device) {
  std::string text;
  for (const v1::RefusedKind& refused : device.refused()) {
    text += Concat(text.empty() ? "" : "; ", KindName(refused.kind()), ": ", refused.why());
  }
  return text;
}

Cell CellOf(Cell cell) { return cell; }
Cell CellOf(uint64_t number) { return Cell::Number(number); }
Cell CellOf(const std::string& text) { return Cell::Text(text); }

// `read`: a function of the row, or a field of the message. It returns a Cell, a number or a text.
template <class Row, class Read>
Column<Row> Shown(std::string name, Read read, bool wide = false) {
  return {std::move(name), wide, [read](const Row& row, bool) { return CellOf(std::invoke(read, row)); }};
}
template <class Row, class Read>
Column<Row> Wide(std::string name, Read read) {
  return Shown<Row>(std::move(name), read, true);
}

}  // namespace

std::string Cell::In(const Table& table) const {
  if (is == Is::kSize) return table.Size(number);
  if (is == Is::kAge) return table.Age(number);
  return is == Is::kNumber ? std::to_string(number) : text;
}

Kind<ShareInfo> ShareKind() {
  using Row = ShareInfo;
  std::vector<Column<Row>> columns{
      Shown<Row>("NAMESPACE", [](const Row& row) { return row.share().namespace_(); }),
      Shown<Row>("NAME", [](const Row& row) { return row.share().name(); }),
      Shown<Row>("GENERATION", [](const Row& row) { return row.share().generation(); }),
      Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.share().handle().size()); }),
      {"ARRAYS", false, [](const Row& row, bool wide) { return Cell::Text(Arrays(row.share(), wide)); }},
      Shown<Row>("LEASES", &Row::leases),
      Shown<Row>("AGE", [](const Row& row) { return Cell::Age(row.age_ms()); }),
      Shown<Row>("MAKER", [](const Row& row) { return SessionOrGone(row.maker()); }),
      Shown<Row>("PID", &Row::maker_process_id),
      Shown<Row>("IMMUTABLE",
                 [](const Row& row) {
                   return row.share().immutability() == v1::IMMUTABILITY_ENFORCED ? "enforced" : "contract";
                 }),
      Shown<Row>("DEVICE", [](const Row& row) { return DeviceName(row.share().handle().device()); }),
      Shown<Row>("KIND", [](const Row& row) { return KindName(row.share().handle().kind()); }),
      Shown<Row>("RESIDENCY", [](const Row& row) { return ResidencyOf(row.share()); }),
      Shown<Row>("FENCE",
                 [](const Row& row) { return row.share().fence().kind() == v1::Fence::DONE ? "done" : "event"; }),
      Wide<Row>("UID", [](const Row& row) { return row.has_maker_uid() ? Cell::Number(row.maker_uid()) : Cell(); }),
      Wide<Row>("ID", [](const Row& row) { return row.share().id(); }),
      Wide<Row>("ARENA", [](const Row& row) { return row.share().handle().arena(); }),
      Wide<Row>("OFFSET", [](const Row& row) { return row.share().handle().offset(); }),
      Wide<Row>("METADATA", [](const Row& row) { return Cell::Size(row.share().metadata().size()); }),
      Wide<Row>("EXPIRES IN", [](const Row& row) { return row.expires() ? Cell::Age(row.expires_in_ms()) : Cell(); }),
      Wide<Row>("ON EXIT", [](const Row& row) { return row.goes_with_maker() ? "withdraw" : "keep"; }),
      Wide<Row>("FORWARD OF",
                [](const Row& row) { return row.forward_of() == 0 ? Cell() : Cell::Number(row.forward_of()); }),
  };
  return {ListRequest::SHARES, [](ListResponse* answer) { return answer->mutable_shares(); }, std::move(columns),
          [](const Row& row) -> const v1::Device& { return row.share().handle().device(); }};
}

Kind<SessionInfo> SessionKind() {
  using Row = SessionInfo;
  std::vector<Column<Row>> columns{
      Shown<Row>("SESSION", &Row::session),
      Shown<Row>("CLIENT", &Row::client),
      Shown<Row>("UID", &Row::uid),
      Shown<Row>("PID", &Row::process_id),
      Shown<Row>("DOOR", [](const Row& row) { return row.awaited() ? row.door() + ", away" : row.door(); }),
      Shown<Row>("AGE", [](const Row& row) { return Cell::Age(row.age_ms()); }),
      Shown<Row>("LEASES", &Row::leases),
      Shown<Row>("ARENAS", &Row::arenas),
      Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.arena_bytes()); }),
      Shown<Row>("BORN", [](const Row& row) { return Cell::Size(BornBytes(row)); }),
      Wide<Row>("BORN BY", BornText),
      Wide<Row>("MISSED", MissedText),
      Wide<Row>("KINDS", [](const Row& row) { return KindNames(row.kinds()); }),
  };
  return {ListRequest::SESSIONS, [](ListResponse* answer) { return answer->mutable_sessions(); }, std::move(columns)};
}

Kind<LeaseInfo> LeaseKind() {
  using Row = LeaseInfo;
  std::vector<Column<Row>> columns{
      Shown<Row>("LEASE", &Row::lease),
      Shown<Row>("SESSION", &Row::session),
      Shown<Row>("NAMESPACE", &Row::namespace_),
      Shown<Row>("NAME", &Row::name),
      Shown<Row>("GENERATION", &Row::generation),
      Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.size()); }),
      Wide<Row>("UID", &Row::uid),
      Wide<Row>("PID", &Row::process_id),
      Wide<Row>("DEVICE", [](const Row& row) { return DeviceName(row.device()); }),
      Wide<Row>("SHARE", &Row::share),
  };
  return {ListRequest::LEASES, [](ListResponse* answer) { return answer->mutable_leases(); }, std::move(columns),
          [](const Row& row) -> const v1::Device& { return row.device(); }};
}

Kind<NamespaceInfo> NamespaceKind() {
  using Row = NamespaceInfo;
  std::vector<Column<Row>> columns{
      Shown<Row>("NAMESPACE", &Row::namespace_),
      Shown<Row>("UID", [](const Row& row) { return row.shared() ? Cell::Text("shared") : Cell::Number(row.uid()); }),
      Shown<Row>("QUOTA", [](const Row& row) { return Cell::Size(row.quota_bytes()); }),
      Shown<Row>("CHARGED", [](const Row& row) { return Cell::Size(row.charged_bytes()); }),
      Shown<Row>("SHARES", &Row::shares),
      Shown<Row>("NAMED", [](const Row& row) { return Cell::Size(row.named_bytes()); }),
      Shown<Row>("QUEUED", [](const Row& row) { return Cell::Size(row.queued_bytes()); }),
      Shown<Row>(
          "HELD",
          [](const Row& row) { return Cell::Size(Left(row.share_bytes(), row.named_bytes() + row.queued_bytes())); }),
      Shown<Row>("UNUSED", [](const Row& row) { return Cell::Size(Left(row.charged_bytes(), row.share_bytes())); }),
      Wide<Row>("UNOWNED", [](const Row& row) { return Cell::Size(row.unowned_bytes()); }),
      Wide<Row>("FREE", [](const Row& row) { return Cell::Size(Left(row.quota_bytes(), row.charged_bytes())); }),
      Wide<Row>("RIGHT", [](const Row& row) { return row.read_only() ? "read" : "write"; }),
      Wide<Row>(
          "LIFETIME",
          [](const Row& row) { return row.share_lifetime_ms() == 0 ? Cell() : Cell::Age(row.share_lifetime_ms()); }),
      Wide<Row>("ORPHAN GRACE", [](const Row& row) { return Cell::Age(row.orphan_grace_ms()); }),
      Wide<Row>("ON EXIT", [](const Row& row) { return row.withdraws_on_exit() ? "withdraw" : "keep"; }),
  };
  return {ListRequest::NAMESPACES, [](ListResponse* answer) { return answer->mutable_namespaces(); },
          std::move(columns)};
}

Kind<DeviceInfo> DeviceKind() {
  using Row = DeviceInfo;
  std::vector<Column<Row>> columns{
      Shown<Row>("DEVICE", [](const Row& row) { return DeviceName(row.device()); }),
      Shown<Row>("KINDS", [](const Row& row) { return KindNames(row.kinds()); }),
      Shown<Row>("CAPACITY", [](const Row& row) { return Cell::Size(row.capacity_bytes()); }),
      Shown<Row>("ALLOCATED", [](const Row& row) { return Cell::Size(row.allocated_bytes()); }),
      Shown<Row>("CACHED", [](const Row& row) { return Cell::Size(row.cached_bytes()); }),
      Shown<Row>("QUARANTINED", [](const Row& row) { return Cell::Size(row.quarantined_bytes()); }),
      Shown<Row>("SERVICE", [](const Row& row) { return row.out_of_service() ? "lost" : "in service"; }),
      Wide<Row>("FREE", [](const Row& row) { return Cell::Size(Left(row.capacity_bytes(), row.allocated_bytes())); }),
      Wide<Row>("NUMBER", [](const Row& row) { return static_cast<uint64_t>(row.device().id()); }),
      Wide<Row>("NOT SHARED AS", Refused),
  };
  return {ListRequest::DEVICES, [](ListResponse* answer) { return answer->mutable_devices(); }, std::move(columns),
          [](const Row& row) -> const v1::Device& { return row.device(); }};
}

std::string ModeName(const ChannelInfo& channel) {
  switch (channel.mode()) {
    case v1::CHANNEL_MODE_BROADCAST:
      return channel.drop_oldest() ? "broadcast, drop oldest" : "broadcast";
    case v1::CHANNEL_MODE_LATEST:
      return "latest";
    case v1::CHANNEL_MODE_QUEUE:
      return "queue";
    default:
      return "not stated";
  }
}

std::string RateText(double per_second) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), per_second < 10 ? "%.1f/s" : "%.0f/s", per_second);
  return text.data();
}

Kind<ChannelInfo> ChannelKind(std::shared_ptr<const ChannelRates> rates) {
  using Row = ChannelInfo;
  const auto rate = [rates = std::move(rates)](const Row& row) {
    if (rates == nullptr) return Cell();
    const auto found = rates->find(RateKey(row));
    if (found == rates->end()) return Cell();
    Cell cell = Cell::Text(RateText(found->second));
    cell.number = static_cast<uint64_t>(10 * found->second);
    return cell;
  };
  std::vector<Column<Row>> columns{
      Shown<Row>("NAMESPACE", &Row::namespace_),
      Shown<Row>("CHANNEL", &Row::name),
      Shown<Row>("SENDERS", &Row::senders),
      Shown<Row>("RECEIVERS", &Row::receivers),
      Shown<Row>("QUEUED", &Row::queued),
      Shown<Row>("CAPACITY", &Row::capacity),
      Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.queued_bytes()); }),
      Shown<Row>("OLDEST", [](const Row& row) { return row.queued() > 0 ? Cell::Age(row.oldest_ms()) : Cell(); }),
      Shown<Row>("SENT", &Row::sent),
      Shown<Row>("RATE", rate),
      Shown<Row>("DROPPED", &Row::dropped),
      Shown<Row>("MODE", ModeName),
      Shown<Row>("STREAM", &Row::stream),
      Wide<Row>("RECEIVED", &Row::received),
      Wide<Row>("REPLAY", &Row::replay),
      Shown<Row>("DIRECT", [](const Row& row) { return row.direct() ? "yes" : "no"; }),
      Wide<Row>("UID", [](const Row& row) { return row.shared() ? Cell::Text("shared") : Cell::Number(row.uid()); }),
  };
  return {ListRequest::CHANNELS, [](ListResponse* answer) { return answer->mutable_channels(); }, std::move(columns)};
}

}  // namespace arraybridge::ctl

// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/columns.h"

#include <array>
#include <cstdio>

#include <arraybridge/bundle.h>

#include "client/ctl/output/print.h"
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

constexpr bool kWide = true;

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

Cell AgeOrNone(uint64_t milliseconds) { return milliseconds == 0 ? Cell::Text("") : Cell::Age(milliseconds); }

uint64_t Left(uint64_t all, uint64_t used) { return used < all ? all - used : 0; }

std::string Refused(const DeviceInfo& device) {
  std::string text;
  for (const v1::RefusedKind& refused : device.refused()) {
    text += Concat(text.empty() ? "" : "; ", KindName(refused.kind()), ": ", refused.why());
  }
  return text;
}

template <class Row, class Make>
Column<Row> Shown(std::string name, Make make) {
  return {std::move(name), false, [make](const Row& row, bool) { return make(row); }};
}
template <class Row, class Make>
Column<Row> Wide(std::string name, Make make) {
  return {std::move(name), kWide, [make](const Row& row, bool) { return make(row); }};
}

std::vector<Column<ShareInfo>> ShareColumns() {
  using Row = ShareInfo;
  return {
      Shown<Row>("NAMESPACE", [](const Row& row) { return Cell::Text(row.share().namespace_()); }),
      Shown<Row>("NAME", [](const Row& row) { return Cell::Text(row.share().name()); }),
      Shown<Row>("GENERATION", [](const Row& row) { return Cell::Number(row.share().generation()); }),
      Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.share().handle().size()); }),
      {"ARRAYS", false, [](const Row& row, bool wide) { return Cell::Text(Arrays(row.share(), wide)); }},
      Shown<Row>("LEASES", [](const Row& row) { return Cell::Number(row.leases()); }),
      Shown<Row>("AGE", [](const Row& row) { return Cell::Age(row.age_ms()); }),
      Shown<Row>("MAKER", [](const Row& row) { return SessionOrGone(row.maker()); }),
      Shown<Row>("PID", [](const Row& row) { return Cell::Number(row.maker_process_id()); }),
      Shown<Row>("IMMUTABLE",
                 [](const Row& row) {
                   const bool enforced = row.share().immutability() == v1::IMMUTABILITY_ENFORCED;
                   return Cell::Text(enforced ? "enforced" : "contract");
                 }),
      Shown<Row>("DEVICE", [](const Row& row) { return Cell::Text(DeviceName(row.share().handle().device())); }),
      Shown<Row>("KIND", [](const Row& row) { return Cell::Text(KindName(row.share().handle().kind())); }),
      Shown<Row>(
          "FENCE",
          [](const Row& row) { return Cell::Text(row.share().fence().kind() == v1::Fence::DONE ? "done" : "event"); }),
      Wide<Row>("UID",
                [](const Row& row) { return row.has_maker_uid() ? Cell::Number(row.maker_uid()) : Cell::Text(""); }),
      Wide<Row>("ID", [](const Row& row) { return Cell::Number(row.share().id()); }),
      Wide<Row>("ARENA", [](const Row& row) { return Cell::Number(row.share().handle().arena()); }),
      Wide<Row>("OFFSET", [](const Row& row) { return Cell::Number(row.share().handle().offset()); }),
      Wide<Row>("METADATA", [](const Row& row) { return Cell::Size(row.share().metadata().size()); }),
      Wide<Row>("EXPIRES IN",
                [](const Row& row) { return row.expires() ? Cell::Age(row.expires_in_ms()) : Cell::Text(""); }),
      Wide<Row>("ON EXIT", [](const Row& row) { return Cell::Text(row.goes_with_maker() ? "withdraw" : "keep"); }),
      Wide<Row>("FORWARD OF",
                [](const Row& row) { return row.forward_of() == 0 ? Cell::Text("") : Cell::Number(row.forward_of()); }),
  };
}

}  // namespace

std::string Cell::In(const Table& table) const {
  if (is == Is::kSize) return table.Size(number);
  if (is == Is::kAge) return table.Age(number);
  return is == Is::kNumber ? std::to_string(number) : text;
}

Kind<ShareInfo> ShareKind() {
  Kind<ShareInfo> kind{ListRequest::SHARES, [](ListResponse* answer) { return answer->mutable_shares(); },
                       ShareColumns()};
  kind.owner = [](const ShareInfo& row) { return row.has_maker_uid() ? std::optional(row.maker_uid()) : std::nullopt; };
  kind.process_id = [](const ShareInfo& row) { return row.maker_process_id(); };
  kind.device = [](const ShareInfo& row) -> const v1::Device& { return row.share().handle().device(); };
  kind.age_ms = [](const ShareInfo& row) { return row.age_ms(); };
  kind.session = [](const ShareInfo& row) { return SessionOrGone(row.maker()); };
  kind.ns = [](const ShareInfo& row) { return row.share().namespace_(); };
  kind.bytes = [](const ShareInfo& row) { return row.share().handle().size(); };
  return kind;
}

Kind<SessionInfo> SessionKind() {
  using Row = SessionInfo;
  Kind<Row> kind{
      ListRequest::SESSIONS,
      [](ListResponse* answer) { return answer->mutable_sessions(); },
      {Shown<Row>("SESSION", [](const Row& row) { return Cell::Number(row.session()); }),
       Shown<Row>("CLIENT", [](const Row& row) { return Cell::Text(row.client()); }),
       Shown<Row>("UID", [](const Row& row) { return Cell::Number(row.uid()); }),
       Shown<Row>("PID", [](const Row& row) { return Cell::Number(row.process_id()); }),
       Shown<Row>("DOOR",
                  [](const Row& row) { return Cell::Text(row.awaited() ? row.door() + ", away" : row.door()); }),
       Shown<Row>("AGE", [](const Row& row) { return Cell::Age(row.age_ms()); }),
       Shown<Row>("LEASES", [](const Row& row) { return Cell::Number(row.leases()); }),
       Shown<Row>("ARENAS", [](const Row& row) { return Cell::Number(row.arenas()); }),
       Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.arena_bytes()); }),
       Wide<Row>("KINDS", [](const Row& row) { return Cell::Text(KindNames(row.kinds())); })}};
  kind.owner = [](const Row& row) { return std::optional(row.uid()); };
  kind.process_id = [](const Row& row) { return row.process_id(); };
  kind.age_ms = [](const Row& row) { return row.age_ms(); };
  return kind;
}

Kind<LeaseInfo> LeaseKind() {
  using Row = LeaseInfo;
  Kind<Row> kind{ListRequest::LEASES,
                 [](ListResponse* answer) { return answer->mutable_leases(); },
                 {Shown<Row>("LEASE", [](const Row& row) { return Cell::Number(row.lease()); }),
                  Shown<Row>("SESSION", [](const Row& row) { return Cell::Number(row.session()); }),
                  Shown<Row>("NAMESPACE", [](const Row& row) { return Cell::Text(row.namespace_()); }),
                  Shown<Row>("NAME", [](const Row& row) { return Cell::Text(row.name()); }),
                  Shown<Row>("GENERATION", [](const Row& row) { return Cell::Number(row.generation()); }),
                  Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.size()); }),
                  Wide<Row>("UID", [](const Row& row) { return Cell::Number(row.uid()); }),
                  Wide<Row>("PID", [](const Row& row) { return Cell::Number(row.process_id()); }),
                  Wide<Row>("DEVICE", [](const Row& row) { return Cell::Text(DeviceName(row.device())); }),
                  Wide<Row>("SHARE", [](const Row& row) { return Cell::Number(row.share()); })}};
  kind.owner = [](const Row& row) { return std::optional(row.uid()); };
  kind.process_id = [](const Row& row) { return row.process_id(); };
  kind.device = [](const Row& row) -> const v1::Device& { return row.device(); };
  kind.session = [](const Row& row) { return SessionOrGone(row.session()); };
  kind.ns = [](const Row& row) { return row.namespace_(); };
  kind.bytes = [](const Row& row) { return row.size(); };
  return kind;
}

Kind<NamespaceInfo> NamespaceKind() {
  using Row = NamespaceInfo;
  Kind<Row> kind{
      ListRequest::NAMESPACES,
      [](ListResponse* answer) { return answer->mutable_namespaces(); },
      {Shown<Row>("NAMESPACE", [](const Row& row) { return Cell::Text(row.namespace_()); }),
       Shown<Row>("UID", [](const Row& row) { return row.shared() ? Cell::Text("shared") : Cell::Number(row.uid()); }),
       Shown<Row>("QUOTA", [](const Row& row) { return Cell::Size(row.quota_bytes()); }),
       Shown<Row>("CHARGED", [](const Row& row) { return Cell::Size(row.charged_bytes()); }),
       Shown<Row>("SHARES", [](const Row& row) { return Cell::Number(row.shares()); }),
       Shown<Row>("NAMED", [](const Row& row) { return Cell::Size(row.named_bytes()); }),
       Shown<Row>("QUEUED", [](const Row& row) { return Cell::Size(row.queued_bytes()); }),
       Shown<Row>(
           "HELD",
           [](const Row& row) { return Cell::Size(Left(row.share_bytes(), row.named_bytes() + row.queued_bytes())); }),
       Shown<Row>("UNUSED", [](const Row& row) { return Cell::Size(Left(row.charged_bytes(), row.share_bytes())); }),
       Wide<Row>("UNOWNED", [](const Row& row) { return Cell::Size(row.unowned_bytes()); }),
       Wide<Row>("FREE", [](const Row& row) { return Cell::Size(Left(row.quota_bytes(), row.charged_bytes())); }),
       Wide<Row>("RIGHT", [](const Row& row) { return Cell::Text(row.read_only() ? "read" : "write"); }),
       Wide<Row>("LIFETIME", [](const Row& row) { return AgeOrNone(row.share_lifetime_ms()); }),
       Wide<Row>("ORPHAN GRACE", [](const Row& row) { return Cell::Age(row.orphan_grace_ms()); }),
       Wide<Row>("ON EXIT", [](const Row& row) { return Cell::Text(row.withdraws_on_exit() ? "withdraw" : "keep"); })}};
  kind.owner = [](const Row& row) { return row.shared() ? std::nullopt : std::optional(row.uid()); };
  return kind;
}

Kind<DeviceInfo> DeviceKind() {
  using Row = DeviceInfo;
  Kind<Row> kind{
      ListRequest::DEVICES,
      [](ListResponse* answer) { return answer->mutable_devices(); },
      {Shown<Row>("DEVICE", [](const Row& row) { return Cell::Text(DeviceName(row.device())); }),
       Shown<Row>("KINDS", [](const Row& row) { return Cell::Text(KindNames(row.kinds())); }),
       Shown<Row>("CAPACITY", [](const Row& row) { return Cell::Size(row.capacity_bytes()); }),
       Shown<Row>("ALLOCATED", [](const Row& row) { return Cell::Size(row.allocated_bytes()); }),
       Shown<Row>("CACHED", [](const Row& row) { return Cell::Size(row.cached_bytes()); }),
       Shown<Row>("QUARANTINED", [](const Row& row) { return Cell::Size(row.quarantined_bytes()); }),
       Shown<Row>("SERVICE", [](const Row& row) { return Cell::Text(row.out_of_service() ? "lost" : "in service"); }),
       Wide<Row>("FREE", [](const Row& row) { return Cell::Size(Left(row.capacity_bytes(), row.allocated_bytes())); }),
       Wide<Row>("NUMBER", [](const Row& row) { return Cell::Number(static_cast<uint64_t>(row.device().id())); }),
       Wide<Row>("NOT SHARED AS", [](const Row& row) { return Cell::Text(Refused(row)); })}};
  kind.device = [](const Row& row) -> const v1::Device& { return row.device(); };
  return kind;
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
  Kind<Row> kind{
      ListRequest::CHANNELS,
      [](ListResponse* answer) { return answer->mutable_channels(); },
      {Shown<Row>("NAMESPACE", [](const Row& row) { return Cell::Text(row.namespace_()); }),
       Shown<Row>("CHANNEL", [](const Row& row) { return Cell::Text(row.name()); }),
       Shown<Row>("SENDERS", [](const Row& row) { return Cell::Number(row.senders()); }),
       Shown<Row>("RECEIVERS", [](const Row& row) { return Cell::Number(row.receivers()); }),
       Shown<Row>("QUEUED", [](const Row& row) { return Cell::Number(row.queued()); }),
       Shown<Row>("CAPACITY", [](const Row& row) { return Cell::Number(row.capacity()); }),
       Shown<Row>("SIZE", [](const Row& row) { return Cell::Size(row.queued_bytes()); }),
       Shown<Row>("OLDEST", [](const Row& row) { return row.queued() > 0 ? Cell::Age(row.oldest_ms()) : Cell(); }),
       Shown<Row>("SENT", [](const Row& row) { return Cell::Number(row.sent()); }), Shown<Row>("RATE", rate),
       Shown<Row>("DROPPED", [](const Row& row) { return Cell::Number(row.dropped()); }),
       Shown<Row>("MODE", [](const Row& row) { return Cell::Text(ModeName(row)); }),
       Shown<Row>("STREAM", [](const Row& row) { return Cell::Number(row.stream()); }),
       Wide<Row>("RECEIVED", [](const Row& row) { return Cell::Number(row.received()); }),
       Wide<Row>("REPLAY", [](const Row& row) { return Cell::Number(row.replay()); }),
       Shown<Row>("DIRECT", [](const Row& row) { return Cell::Text(row.direct() ? "yes" : "no"); }),
       Wide<Row>("UID", [](const Row& row) { return row.shared() ? Cell::Text("shared") : Cell::Number(row.uid()); })}};
  kind.owner = [](const Row& row) { return row.shared() ? std::nullopt : std::optional(row.uid()); };
  return kind;
}

}  // namespace arraybridge::ctl

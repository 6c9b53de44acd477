// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/http/overview.h"

#include "proto/boundary/text.h"

namespace arraybridge::daemon {
namespace {

using Stats = v1::GetStatsResponse;

constexpr Counter kCounters[] = {
    {&Stats::sessions, "sessions", "Connected client processes.", "sessions"},
    {&Stats::sessions_total, "sessions_total", "Sessions opened since the start.", ""},
    {&Stats::sessions_cut_total, "sessions_cut_total", "Sessions ended for breaking the protocol or a limit.",
     "sessions cut since the start"},
    {&Stats::leases, "leases", "Arrays that sessions hold by a call.", "leases"},
    {&Stats::hazard_slots, "hazard_slots", "Hazard slots in use: shares that sessions hold without a call.",
     "hazard slots"},
    {&Stats::pinned_bytes, "pinned_bytes", "Bytes of withdrawn shares that only hazard slots keep.", ""},
    {&Stats::withdrawn_shares, "withdrawn_shares", "Shares without a name that sessions still read.",
     "shares without a name that are still read"},
    {&Stats::channels, "channels", "Open channels.", "channels"},
    {&Stats::queued_shares, "queued_shares", "Shares in channels that have not been received yet.",
     "shares in channels, not yet received"},
    {&Stats::channel_sent_total, "channel_sent_total", "Shares sent into channels.",
     "sent into channels since the start"},
    {&Stats::channel_received_total, "channel_received_total", "Shares received from channels, by each receiver.", ""},
    {&Stats::channel_dropped_total, "channel_dropped_total",
     "Shares that receivers of channels missed, and shares that were drained.", ""},
    {&Stats::arenas, "arenas", "Arenas with a charge.", "arenas"},
    {&Stats::dying_arenas, "dying_arenas", "Released arenas that a process still maps.",
     "released arenas that are still mapped"},
    {&Stats::pending_fences, "pending_fences", "Shares whose bytes are still being written.",
     "shares whose bytes are still being written"},
    {&Stats::lost_fences_total, "lost_fences_total", "Shares dropped because their bytes were never written.", ""},
    {&Stats::tickets, "tickets", "Tickets not yet redeemed.", "tickets"},
    {&Stats::waiting, "waiting_requests", "Requests that wait for memory, a name or a channel.", "waiting requests"},
    {&Stats::watchers, "watchers", "Open watches.", "open watches"},
    {&Stats::events_dropped_total, "events_dropped_total", "Events that watches lost because they read too slowly.",
     ""},
    {&Stats::publishes_total, "publishes_total", "Shares published since the start.", "published since the start"},
    {&Stats::forwards_total, "forwards_total", "Shares published since the start without bytes of their own.", ""},
    {&Stats::acquires_total, "acquires_total", "Leases granted since the start.", "leases granted since the start"},
    {&Stats::refusals_total, "refusals_total", "Requests answered with an error, other than that their wait has ended.",
     "requests refused since the start"},
};

}  // namespace

std::span<const Counter> Counters() { return kCounters; }

std::map<Owner, NamespaceRow> SumByOwner(const std::vector<NamespaceRow>& rows, bool names) {
  std::map<Owner, NamespaceRow> sums;
  for (const NamespaceRow& row : rows) {
    NamespaceRow& sum = sums[{row.uid, names ? Printable(row.ns) : std::string()}];
    sum.quota_bytes += row.quota_bytes;
    sum.charged_bytes += row.charged_bytes;
    sum.shares += row.shares;
    sum.share_bytes += row.share_bytes;
    sum.named_bytes += row.named_bytes;
    sum.queued_bytes += row.queued_bytes;
  }
  return sums;
}

std::string OwnerName(uint32_t uid) { return uid == kSharedByUsers ? "shared" : std::to_string(uid); }

std::string_view NameOf(Door door) { return door == Door::kLifeline ? "local" : "grpc"; }

}  // namespace arraybridge::daemon

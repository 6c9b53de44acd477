// SPDX-License-Identifier: Apache-2.0
// Decoding answers about the broker: its version and limits, its statistics, its errors.
#include <utility>

#include "client/wire/codec.h"

namespace arraybridge::codec {
namespace {

// A limit of 0 means no limit.
uint64_t LimitOf(uint64_t said) { return said == 0 ? ShareLimits::kNone : said; }

Limits LimitsOf(const wire::Limits& said) {
  Limits limits;
  limits.names_per_request_max = said.names_per_request_max;
  limits.request_timeout_max_ms = said.request_timeout_max_ms;
  limits.arena_idle_ms = said.arena_idle_ms;
  limits.own_arena_bytes_min = said.own_arena_bytes_min;
  limits.note_bytes_max = said.note_bytes_max == 0 ? kNoteBytesMax : said.note_bytes_max;
  limits.share = {.frame_bytes_max = LimitOf(said.frame_bytes_max),
                  .name_bytes_max = LimitOf(said.name_bytes_max),
                  .arrays_per_share_max = LimitOf(said.arrays_per_share_max),
                  .rank_max = LimitOf(said.rank_max),
                  .spec_bytes_max = LimitOf(said.spec_bytes_max),
                  .structure_bytes_max = LimitOf(said.structure_bytes_max),
                  .metadata_bytes_max = LimitOf(said.metadata_bytes_max)};
  return limits;
}

Stats StatsOf(const wire::GetStatsResponse& said) {
  Stats stats{.sessions = said.sessions,
              .leases = said.leases,
              .shares = said.shares,
              .withdrawn_shares = said.withdrawn_shares,
              .arenas = said.arenas,
              .charged_bytes = said.charged_bytes,
              .tickets = said.tickets,
              .waiting = said.waiting,
              .dying_arenas = said.dying_arenas,
              .sessions_total = said.sessions_total,
              .publishes_total = said.publishes_total,
              .forwards_total = said.forwards_total,
              .acquires_total = said.acquires_total,
              .refusals_total = said.refusals_total,
              .sessions_cut_total = said.sessions_cut_total,
              .pending_fences = said.pending_fences,
              .lost_fences_total = said.lost_fences_total,
              .hazard_slots = said.hazard_slots,
              .pinned_bytes = said.pinned_bytes,
              .channels = said.channels,
              .queued_shares = said.queued_shares,
              .channel_sent_total = said.channel_sent_total,
              .channel_received_total = said.channel_received_total,
              .channel_dropped_total = said.channel_dropped_total,
              .watchers = said.watchers,
              .events_dropped_total = said.events_dropped_total};
  for (const wire::DeviceInfo& device : said.devices) {
    stats.capacity_bytes += device.capacity_bytes;
    stats.allocated_bytes += device.allocated_bytes;
    stats.cached_bytes += device.cached_bytes;
    stats.quarantined_bytes += device.quarantined_bytes;
  }
  return stats;
}

}  // namespace

Status Malformed(std::string_view what) {
  return Status(Code::kDataLoss, Concat("the broker's answer has a malformed ", what), "MALFORMED_ANSWER");
}

Server ServerOf(const wire::GetServerInfoResponse& said) {
  Server server;
  server.info = {std::string(said.version), std::string(said.broker_id), said.protocol_min, said.protocol_max,
                 said.uptime_ms};
  if (said.limits) server.limits = LimitsOf(*said.limits);
  for (const std::string_view can : said.capabilities) {
    server.events = server.events || can == "events";
  }
  server.clock_ms = said.clock_ms;
  return server;
}

Result<Stats> DecodeStats(std::string_view message) {
  return Read<wire::GetStatsResponse>(message, [](const auto& said) -> Result<Stats> { return StatsOf(said); });
}

Status DecodeError(uint32_t code, std::string_view message) {
  const bool known = code != 0 && code <= static_cast<uint32_t>(Code::kUnauthenticated);
  const Code number = known ? static_cast<Code>(code) : Code::kUnknown;
  if (const auto error = Read<wire::Error>(message); error.ok()) {
    Status status(number, std::string(error->message), std::string(error->reason));
    for (const wire::ErrorEntry& entry : error->metadata) {
      status = std::move(status).With(std::string(entry.key), std::string(entry.value));
    }
    return status;
  }
  return Status(number, "the broker returned an error that does not parse");
}

}  // namespace arraybridge::codec

// SPDX-License-Identifier: Apache-2.0
// Decoding answers about the broker: its version and limits, its statistics, its errors.
#include <utility>

#include "client/wire/codec.h"

namespace arraybridge::codec {
namespace {

// A limit of 0 means no limit.
uint64_t LimitOf(uint64_t limit) { return limit == 0 ? ShareLimits::kNone : limit; }

Limits LimitsOf(const wire::Limits& message) {
  Limits limits;
  limits.names_per_request_max = message.names_per_request_max;
  limits.request_timeout_max_ms = message.request_timeout_max_ms;
  limits.arena_idle_ms = message.arena_idle_ms;
  limits.own_arena_bytes_min = message.own_arena_bytes_min;
  limits.note_bytes_max = message.note_bytes_max == 0 ? kNoteBytesMax : message.note_bytes_max;
  limits.share = {.frame_bytes_max = LimitOf(message.frame_bytes_max),
                  .name_bytes_max = LimitOf(message.name_bytes_max),
                  .arrays_per_share_max = LimitOf(message.arrays_per_share_max),
                  .rank_max = LimitOf(message.rank_max),
                  .spec_bytes_max = LimitOf(message.spec_bytes_max),
                  .structure_bytes_max = LimitOf(message.structure_bytes_max),
                  .metadata_bytes_max = LimitOf(message.metadata_bytes_max)};
  return limits;
}

Stats StatsOf(const wire::GetStatsResponse& reply) {
  Stats stats{.sessions = reply.sessions,
              .leases = reply.leases,
              .shares = reply.shares,
              .withdrawn_shares = reply.withdrawn_shares,
              .arenas = reply.arenas,
              .charged_bytes = reply.charged_bytes,
              .tickets = reply.tickets,
              .waiting = reply.waiting,
              .dying_arenas = reply.dying_arenas,
              .sessions_total = reply.sessions_total,
              .publishes_total = reply.publishes_total,
              .forwards_total = reply.forwards_total,
              .acquires_total = reply.acquires_total,
              .refusals_total = reply.refusals_total,
              .sessions_cut_total = reply.sessions_cut_total,
              .pending_fences = reply.pending_fences,
              .lost_fences_total = reply.lost_fences_total,
              .hazard_slots = reply.hazard_slots,
              .pinned_bytes = reply.pinned_bytes,
              .channels = reply.channels,
              .queued_shares = reply.queued_shares,
              .channel_sent_total = reply.channel_sent_total,
              .channel_received_total = reply.channel_received_total,
              .channel_dropped_total = reply.channel_dropped_total,
              .watchers = reply.watchers,
              .events_dropped_total = reply.events_dropped_total};
  for (const wire::DeviceInfo& device : reply.devices) {
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

Server ServerOf(const wire::GetServerInfoResponse& reply) {
  Server server;
  server.info = {std::string(reply.version), std::string(reply.broker_id), reply.protocol_min, reply.protocol_max,
                 reply.uptime_ms};
  if (reply.limits) server.limits = LimitsOf(*reply.limits);
  for (const std::string_view can : reply.capabilities) {
    server.events = server.events || can == "events";
  }
  server.clock_ms = reply.clock_ms;
  return server;
}

Result<Stats> DecodeStats(std::string_view message) {
  return Read<wire::GetStatsResponse>(message, [](const auto& reply) -> Result<Stats> { return StatsOf(reply); });
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

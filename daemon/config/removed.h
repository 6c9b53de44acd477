// SPDX-License-Identifier: Apache-2.0
// The keys and flags that earlier versions had, and what replaces each.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace arraybridge {

// The end of an error about TCP, TLS, or clients that a certificate identifies.
inline constexpr char kRemovedWithTcp[] =
    "was removed in 0.2.0: arraybridged listens on Unix sockets only; run `ssh HOST arraybridgectl`, or forward a "
    "socket with `ssh -L`";

// The ends of errors about limits that others contain now, or that no key sets.
inline constexpr char kIsObject[] = "was removed in 0.2.0: set limits.object_bytes_per_uid, which bounds it";
inline constexpr char kIsRequest[] = "was removed in 0.2.0: set limits.requests_per_uid, which bounds it";
inline constexpr char kIsFixed[] = "was removed in 0.2.0: its value is fixed; leave it out";

// The end of an error about a key or flag that this version does not have; empty: no version had it.
inline std::string_view WhyRemoved(std::string_view key_or_flag) {
  struct Removed {
    std::string_view beginning;  // of the key or flag
    std::string_view why;
  };
  constexpr Removed kRemoved[] = {
      {"server.tls.", kRemovedWithTcp},
      {"--tls-", kRemovedWithTcp},
      {"limits.tcp_", kRemovedWithTcp},
      {"limits.subject", kRemovedWithTcp},
      {"limits.leases_per_uid", kIsObject},
      {"limits.hazard_pages_per_uid", kIsObject},
      {"limits.arenas_per_uid", kIsObject},
      {"limits.shares_per_uid", kIsObject},
      {"limits.channel_ends_per_uid", kIsObject},
      {"limits.session_queues_per_uid", kIsObject},
      {"limits.direct_channels_per_uid", kIsObject},
      {"limits.description_bytes_per_uid", kIsObject},
      {"limits.queued_requests_per_uid", kIsRequest},
      {"limits.queued_bytes_per_uid", kIsRequest},
      {"limits.grpc_calls_per_uid", kIsRequest},
      {"limits.grpc_bytes_per_uid", kIsRequest},
      {"limits.connections_per_uid", "was removed in 0.2.0: it is twice limits.sessions_per_uid"},
      {"limits.namespaces_per_uid", "was removed in 0.2.0: it is a quarter of limits.namespaces, or 64"},
      {"limits.watchers_per_uid", "was removed in 0.2.0: it is a quarter of limits.watchers, or 16"},
      {"limits.catalogue_shares", "was removed in 0.2.0: it is limits.shares_per_namespace"},
      {"limits.allocation_bytes_max", "was removed in 0.2.0: set limits.bytes_per_uid, or a quota of the namespace"},
      {"limits.leases_per_session", kIsFixed},
      {"limits.arenas_per_session", kIsFixed},
      {"limits.channel_ends_per_session", kIsFixed},
      {"limits.queued_requests_per_session", kIsFixed},
      {"limits.tickets_per_session_max", kIsFixed},
      {"limits.name_bytes_max", kIsFixed},
      {"limits.names_per_request", kIsFixed},
      {"limits.arrays_per_share_max", kIsFixed},
      {"limits.rank_max", kIsFixed},
      {"limits.spec_bytes_max", kIsFixed},
      {"limits.structure_bytes_max", kIsFixed},
      {"limits.metadata_bytes_max", kIsFixed},
      {"limits.note_bytes_max", kIsFixed},
      {"limits.frame_bytes_max", kIsFixed},
      {"limits.descriptors_in_flight_", kIsFixed},
      {"limits.output_", kIsFixed},
      {"limits.grpc_", kIsFixed},
      {"limits.http_connections_per_address", kIsFixed},
      {"limits.http_request_timeout", kIsFixed},
  };
  const auto* const found = std::ranges::find_if(
      kRemoved, [key_or_flag](const Removed& each) { return key_or_flag.starts_with(each.beginning); });
  return found == std::end(kRemoved) ? "" : found->why;
}

// Of a value that was a list of addresses in earlier versions.
inline std::string WhyRemovedFromList(std::string_view text) {
  return text.find("tcp://") == text.npos ? "" : std::string(": TCP ") + kRemovedWithTcp;
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// The keys and flags that earlier versions had, and what replaces each.
#pragma once

#include <string>
#include <string_view>

namespace arraybridge::daemon {

// The end of an error about TCP, TLS, or clients that a certificate identifies.
inline constexpr char kRemovedWithTcp[] =
    "was removed in 0.2.0: arraybridged listens on Unix sockets only; run `ssh HOST arraybridgectl`, or forward a "
    "socket with `ssh -L`";

// The end of an error about a key or flag that this version does not have; empty: no version had it.
inline std::string_view WhyRemoved(std::string_view key_or_flag) {
  struct Removed {
    std::string_view beginnings;  // of keys and flags, each after a space
    std::string_view why;
  };
  constexpr Removed kRemoved[] = {
      {" server.tls. --tls- limits.tcp_ limits.subject", kRemovedWithTcp},
      {" limits.leases_per_uid limits.hazard_pages_per_uid limits.arenas_per_uid limits.shares_per_uid"
       " limits.channel_ends_per_uid limits.session_queues_per_uid limits.direct_channels_per_uid"
       " limits.description_bytes_per_uid",
       "was removed in 0.2.0: set limits.object_bytes_per_uid, which bounds it"},
      {" limits.queued_requests_per_uid limits.queued_bytes_per_uid limits.grpc_calls_per_uid "
       "limits.grpc_bytes_per_uid",
       "was removed in 0.2.0: set limits.requests_per_uid, which bounds it"},
      {" limits.connections_per_uid", "was removed in 0.2.0: it is twice limits.sessions_per_uid"},
      {" limits.namespaces_per_uid", "was removed in 0.2.0: it is a quarter of limits.namespaces, or 64"},
      {" limits.watchers_per_uid", "was removed in 0.2.0: it is a quarter of limits.watchers, or 16"},
      {" limits.catalogue_shares", "was removed in 0.2.0: it is limits.shares_per_namespace"},
      {" limits.allocation_bytes_max", "was removed in 0.2.0: set limits.bytes_per_uid, or a quota of the namespace"},
      {" limits.leases_per_session limits.arenas_per_session limits.channel_ends_per_session"
       " limits.queued_requests_per_session limits.tickets_per_session_max limits.name_bytes_max"
       " limits.names_per_request limits.arrays_per_share_max limits.rank_max limits.spec_bytes_max"
       " limits.structure_bytes_max limits.metadata_bytes_max limits.note_bytes_max limits.frame_bytes_max"
       " limits.descriptors_in_flight_ limits.output_ limits.grpc_ limits.http_connections_per_address"
       " limits.http_request_timeout",
       "was removed in 0.2.0: its value is fixed; leave it out"},
  };
  for (const auto& [beginnings, why] : kRemoved) {
    for (size_t at = 0; at != beginnings.npos; at = beginnings.find(' ', at + 1)) {
      const std::string_view beginning = beginnings.substr(at + 1);
      if (key_or_flag.starts_with(beginning.substr(0, beginning.find(' ')))) return why;
    }
  }
  return "";
}

// Of a value that was a list of addresses in earlier versions.
inline std::string WhyRemovedFromList(std::string_view text) {
  return text.find("tcp://") == text.npos ? "" : std::string(": TCP ") + kRemovedWithTcp;
}

}  // namespace arraybridge::daemon

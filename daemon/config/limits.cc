// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/limits.h"

#include <limits>
#include <utility>

#include "daemon/config/quantity.h"
#include "daemon/config/value.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

// The key of a limit is the name of its field.
#define AB_LIMIT(name) #name, &Limits::name

// The values that a limit may have.
struct Range {
  uint64_t least = 0;
  uint64_t most = std::numeric_limits<uint64_t>::max();
};
constexpr Range kAny{};
constexpr Range kPositive{1};                                  // a limit of 0 would refuse everything
constexpr Range kCatalogueShares{1, (uint64_t{1} << 26) - 2};  // the range of slots that a hazard word can hold
constexpr Range kFrameBytes{4096, kFrameBytesMax};
constexpr Range kDescriptors{kFrameDescriptorsMax};  // with fewer, some answers could never be sent
// A client asks for a direct channel and for its queue while it receives: that many may be unread at once.
constexpr Range kSessionDescriptors{kFrameDescriptorsMax + 3};

Status CheckRange(std::string_view name, uint64_t value, const Range& range) {
  if (value >= range.least && value <= range.most) return Ok();
  if (range.least > 1 && range.most != Range{}.most) {
    return InvalidArgument("limit ", name, ": ", value, " is not between ", range.least, " and ", range.most);
  }
  if (value < range.least) return InvalidArgument("limit ", name, ": must be more than ", range.least - 1);
  return InvalidArgument("limit ", name, ": ", value, " is more than ", range.most);
}

std::string RangeText(const Range& range) {
  if (range.most != Range{}.most) return Concat(range.least, " to ", range.most);
  return range.least == 0 ? "" : Concat("more than ", range.least - 1);
}

uint64_t CountOf(uint64_t number) { return number; }
uint64_t CountOf(std::chrono::milliseconds time) { return static_cast<uint64_t>(time.count()); }

template <class T, class Read>
Setting Limit(std::string name, T Limits::*field, Read read, const Range& range, std::string help) {
  const auto read_in_range = [name, read, range](std::string_view text) {
    auto value = read(text);
    if (!value.ok()) return value;
    if (Status checked = CheckRange(name, CountOf(*value), range); !checked.ok()) value = std::move(checked);
    return value;
  };
  Value value = In(
      [field](auto& config) -> auto& { return config.limits.*field; }, read_in_range);
  value.range = RangeText(range);
  return {"limits." + name, "", std::move(value), std::move(help)};
}
template <class T>
Setting Number(const char* name, T Limits::*field, const Range& range, const char* help) {
  return Limit(name, field, ReadNumber, range, help);
}
template <class T>
Setting Bytes(const char* name, T Limits::*field, const Range& range, const char* help) {
  return Limit(name, field, ReadBytes, range, help);
}
template <class T>
Setting Duration(const char* name, T Limits::*field, const Range& range, const char* help) {
  return Limit(name, field, ReadDuration, range, help);
}

}  // namespace

std::vector<Setting> LimitSettings() {
  return {
      Number(AB_LIMIT(sessions), kPositive, "connected client processes"),
      Number(AB_LIMIT(sessions_per_uid), kPositive, "connected client processes of one user"),
      Number(AB_LIMIT(leases_per_session), kPositive, "arrays that one session reads at once"),
      Number(AB_LIMIT(leases_per_uid), kPositive, "arrays that the sessions of one user read at once"),
      Number(AB_LIMIT(hazard_pages_per_uid), kAny,
             "hazard pages of one user: one for each session and namespace that it reads without calls"),
      Number(AB_LIMIT(catalogue_shares), kCatalogueShares, "shares of a namespace that clients find without a call"),
      Bytes(AB_LIMIT(pinned_bytes_per_session), kAny,
            "withdrawn bytes that a session holds before it is disconnected; 0 = half its device's capacity"),
      Bytes(AB_LIMIT(pinned_bytes_per_uid), kAny,
            "bytes of others that a user who may only read may hold while some of them are withdrawn; 0 = half of the "
            "namespace's quota and of the device"),
      Number(AB_LIMIT(arenas_per_session), kPositive, "arenas that one session writes"),
      Number(AB_LIMIT(arenas_per_uid), kPositive, "arenas of one user, those of ended sessions included"),
      Number(
          AB_LIMIT(descriptors_per_uid), kAny,
          "descriptors that the daemon keeps for one user; 0 = a quarter of those that it may open, and in the store "
          "for the next daemon as many as are left for others"),
      Number(AB_LIMIT(shares_per_namespace), kPositive, "published arrays under one namespace"),
      Number(AB_LIMIT(shares_per_uid), kPositive, "published arrays of one user, over all namespaces"),
      Number(AB_LIMIT(channels_per_namespace), kAny, "open channels of one namespace"),
      Number(AB_LIMIT(channel_capacity_max), kAny, "shares that wait in one channel"),
      Number(AB_LIMIT(members_per_channel), kAny, "open ends of one channel, senders and receivers together"),
      Number(AB_LIMIT(channel_ends_per_session), kAny, "open ends of channels of one session"),
      Number(AB_LIMIT(channel_ends_per_uid), kAny, "open ends of channels of one user"),
      Number(AB_LIMIT(session_queues_per_uid), kAny, "sessions of one user with a queue, 72 KiB each"),
      Number(AB_LIMIT(direct_channels_per_uid), kAny, "channels of one user that send without calls"),
      Number(AB_LIMIT(namespaces), kPositive, "namespaces that are not empty"),
      Number(AB_LIMIT(namespaces_per_uid), kPositive, "namespaces of one user"),
      Bytes(AB_LIMIT(bytes_per_uid), kAny, "memory of one user, over all namespaces; 0 = the capacity"),
      Bytes(AB_LIMIT(description_bytes_per_uid), kPositive, "descriptions, notes and histories of one user's shares"),
      Bytes(AB_LIMIT(allocation_bytes_max), kAny, "one arena; 0 = the device"),
      Bytes(AB_LIMIT(name_bytes_max), kPositive, "one name"),
      Number(AB_LIMIT(names_per_request), kPositive, "shares in one request"),
      Number(AB_LIMIT(arrays_per_share_max), kPositive, "arrays in one share"),
      Number(AB_LIMIT(rank_max), kPositive, "dimensions of an array"),
      Bytes(AB_LIMIT(spec_bytes_max), kPositive, "all ArraySpecs of one share"),
      Bytes(AB_LIMIT(structure_bytes_max), kAny, "structure of a share's tree"),
      Bytes(AB_LIMIT(metadata_bytes_max), kAny, "user's own bytes of a share"),
      Bytes(AB_LIMIT(note_bytes_max), kAny, "note of a Publish or Acquire, shown in traces"),
      Bytes(AB_LIMIT(history_bytes_per_share), kAny, "history of one share's producers and readers"),
      Number(AB_LIMIT(watchers), kAny, "open watches of all users"),
      Number(AB_LIMIT(watchers_per_uid), kAny, "open watches of one user"),
      Number(AB_LIMIT(events_per_watcher), kAny, "unread events of a watch before it is disconnected"),
      Bytes(AB_LIMIT(frame_bytes_max), kFrameBytes, "one message of the local door"),
      Number(AB_LIMIT(descriptors_in_flight_max), kSessionDescriptors,
             "descriptors sent to one session that it has not read"),
      Number(AB_LIMIT(descriptors_in_flight_per_uid), kDescriptors,
             "descriptors sent to one user's sessions that they have not read"),
      Number(AB_LIMIT(output_frames_max), kPositive, "unread answers of a session before it is disconnected"),
      Bytes(AB_LIMIT(output_bytes_max), kPositive, "bytes of unread answers of a session before it is disconnected"),
      Number(AB_LIMIT(queued_requests_per_session), kPositive, "waiting requests of one session"),
      Number(AB_LIMIT(queued_requests_per_uid), kPositive, "waiting requests of one user"),
      Bytes(AB_LIMIT(queued_bytes_per_uid), kPositive, "memory that one user's waiting requests take"),
      Number(AB_LIMIT(tickets_per_session_max), kAny, "unredeemed tickets of one session"),
      Number(AB_LIMIT(grpc_streams_max), kPositive, "concurrent calls of one gRPC connection"),
      Number(AB_LIMIT(grpc_calls_per_uid), kPositive, "concurrent calls of one user over gRPC"),
      Bytes(AB_LIMIT(grpc_bytes_per_uid), kPositive, "requests of one user's concurrent calls over gRPC"),
      Number(AB_LIMIT(grpc_resets_per_second), kPositive,
             "calls that one user resets over gRPC, and connections that it opens"),
      Bytes(AB_LIMIT(grpc_header_bytes_max), kPositive, "headers of one gRPC call"),
      Number(AB_LIMIT(connections_per_uid), kPositive, "sockets of one user, both doors together"),
      Number(AB_LIMIT(http_connections), kPositive, "sockets of all clients of the HTTP pages"),
      Number(AB_LIMIT(http_connections_per_address), kPositive,
             "sockets of these pages of one IPv4 address, or of one /64 network of IPv6"),
      Duration(AB_LIMIT(hello_timeout), kPositive, "time for the hello of a new connection"),
      Duration(AB_LIMIT(http_request_timeout), kPositive, "time for a whole HTTP request"),
      Duration(AB_LIMIT(ticket_lifetime), kPositive, "lifetime of an unredeemed ticket"),
      Duration(AB_LIMIT(request_timeout_max), kAny, "longest wait of one request"),
  };
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/limits.h"

#include <utility>

#include "daemon/config/quantity.h"
#include "daemon/config/value.h"

namespace arraybridge::daemon {
namespace {

// The key of a limit is the name of its field.
#define AB_LIMIT(name) #name, &Limits::name

// The least value that a limit may have.
constexpr uint64_t kAny = 0;
constexpr uint64_t kPositive = 1;  // a limit of 0 would refuse everything

uint64_t CountOf(uint64_t number) { return number; }
uint64_t CountOf(std::chrono::milliseconds time) { return static_cast<uint64_t>(time.count()); }

template <class T, class Read>
Setting Limit(const std::string& name, T Limits::*field, Read read, uint64_t least, std::string help) {
  const auto read_in_range = [name, read, least](std::string_view text) {
    auto value = read(text);
    if (!value.ok() || CountOf(*value) >= least) return value;
    return decltype(value)(InvalidArgument("limit ", name, ": must be more than ", least - 1));
  };
  Value value = In(
      [field](auto& config) -> auto& { return config.limits.*field; }, read_in_range);
  value.range = least == 0 ? "" : Concat("more than ", least - 1);
  return {"limits." + name, "", std::move(value), std::move(help)};
}
template <class T>
Setting Number(const char* name, T Limits::*field, uint64_t least, const char* help) {
  return Limit(name, field, ReadNumber, least, help);
}
template <class T>
Setting Bytes(const char* name, T Limits::*field, uint64_t least, const char* help) {
  return Limit(name, field, ReadBytes, least, help);
}
template <class T>
Setting Duration(const char* name, T Limits::*field, uint64_t least, const char* help) {
  return Limit(name, field, ReadDuration, least, help);
}

}  // namespace

std::vector<Setting> LimitSettings() {
  return {
      Number(AB_LIMIT(sessions), kPositive, "connected client processes"),
      Number(AB_LIMIT(sessions_per_uid), kPositive,
             "connected client processes of one user; each door takes twice as many of its sockets"),
      Bytes(AB_LIMIT(bytes_per_uid), kAny, "arrays of one user, over all namespaces; 0 = the capacity"),
      Bytes(AB_LIMIT(object_bytes_per_uid), kPositive,
            "the broker's own memory for what one user has: shares, descriptions, leases, arenas, ends of channels, "
            "queues"),
      Number(
          AB_LIMIT(descriptors_per_uid), kAny,
          "descriptors that the daemon keeps for one user; 0 = a quarter of those that it may open, and in the store "
          "for the next daemon as many as are left for others"),
      Number(AB_LIMIT(requests_per_uid), kPositive,
             "requests of one user that wait; a call over gRPC counts as eight of them"),
      Bytes(AB_LIMIT(pinned_bytes_per_session), kAny,
            "withdrawn bytes that a session holds before it is disconnected; 0 = half its device's capacity"),
      Bytes(AB_LIMIT(pinned_bytes_per_uid), kAny,
            "bytes of others that a user who may only read may hold while some of them are withdrawn; 0 = half of the "
            "namespace's quota and of the device"),
      Number(AB_LIMIT(namespaces), kPositive,
             "namespaces that are not empty; one user may have a quarter of them, or 64"),
      Number(AB_LIMIT(shares_per_namespace), kPositive, "published arrays under one namespace"),
      Number(AB_LIMIT(channels_per_namespace), kAny, "open channels of one namespace"),
      Number(AB_LIMIT(channel_capacity_max), kAny, "shares that wait in one channel"),
      Number(AB_LIMIT(members_per_channel), kAny, "open ends of one channel, senders and receivers together"),
      Bytes(AB_LIMIT(history_bytes_per_share), kAny, "history of one share's producers and readers"),
      Number(AB_LIMIT(watchers), kAny, "open watches of all users; one user may have a quarter of them, or 16"),
      Number(AB_LIMIT(events_per_watcher), kAny, "unread events of a watch before it is disconnected"),
      Number(AB_LIMIT(http_connections), kPositive, "sockets of all clients of the HTTP pages"),
      Duration(AB_LIMIT(hello_timeout), kPositive, "time for the hello of a new connection"),
      Duration(AB_LIMIT(ticket_lifetime), kPositive, "lifetime of an unredeemed ticket"),
      Duration(AB_LIMIT(request_timeout_max), kAny, "longest wait of one request"),
  };
}

}  // namespace arraybridge::daemon

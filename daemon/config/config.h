// SPDX-License-Identifier: Apache-2.0
// Config holds every setting that an operator may choose, as plain validated values; settings.cc says what each key
// means. Each limit is checked in one verb or door and has a test that reaches it. A reload changes the Reloadable
// values, and the values that only the main thread reads.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/access.h"
#include "daemon/config/reloadable.h"
#include "daemon/config/tiers/tier_terms.h"
#include "proto/boundary/handle.h"

namespace arraybridge::daemon {

// A user's use is bounded in four currencies: bytes of arrays, bytes of objects, descriptors, and requests in progress.
// docs/explanation/security.md says what counts where. Durations and values that are not Reloadable hold until a
// restart.
struct Limits {
  Reloadable<uint64_t> sessions = 1024;
  Reloadable<uint64_t> sessions_per_uid = 256;
  Reloadable<uint64_t> bytes_per_uid = 0;                    // 0 = the capacity
  Reloadable<uint64_t> object_bytes_per_uid = 512ull << 20;  // ObjectBytes says what each object takes
  Reloadable<uint64_t> descriptors_per_uid = 0;  // 0 = a quarter of the descriptors that the daemon may open
  Reloadable<uint64_t> requests_per_uid = 4096;
  Reloadable<uint64_t> pinned_bytes_per_session = 0;  // 0 = half of the device's capacity
  Reloadable<uint64_t> pinned_bytes_per_uid = 0;      // 0 = half of a namespace's quota and of a device
  Reloadable<uint64_t> namespaces = 256;
  Reloadable<uint64_t> shares_per_namespace = 65536;
  Reloadable<uint64_t> channels_per_namespace = 256;
  Reloadable<uint64_t> channel_capacity_max = 1024;
  Reloadable<uint64_t> members_per_channel = 64;
  Reloadable<uint64_t> history_bytes_per_share = 4096;
  Reloadable<uint64_t> watchers = 64;
  Reloadable<uint64_t> events_per_watcher = 4096;
  uint64_t http_connections = 512;  // a new connection replaces the oldest one of the address with the most
  std::chrono::milliseconds hello_timeout{5000};
  Reloadable<std::chrono::milliseconds> ticket_lifetime{std::chrono::milliseconds(30000)};
  Reloadable<std::chrono::milliseconds> request_timeout_max{std::chrono::milliseconds(60000)};

  // No key sets what follows. These values bound the work under one lock, or one message.
  uint64_t leases_per_session = 65536;
  uint64_t arenas_per_session = 1024;
  uint64_t channel_ends_per_session = 512;
  uint64_t requests_per_session = 64;  // that wait
  uint64_t tickets_per_session = 1024;
  uint64_t claims_per_session = 64;
  uint64_t name_bytes_max = 255;
  uint64_t names_per_request = 256;
  uint64_t arrays_per_share_max = 1024;
  uint64_t rank_max = 64;
  uint64_t spec_bytes_max = 49152;
  uint64_t structure_bytes_max = 32768;
  uint64_t metadata_bytes_max = 16384;
  uint64_t note_bytes_max = 64;
  uint64_t frame_bytes_max = 65536;
  uint64_t descriptors_in_flight_max = 256;       // sent, not yet read by the client: three for each direct channel
  uint64_t descriptors_in_flight_per_uid = 1024;  // includes those of ended lifelines, as the kernel does
  uint64_t output_frames_max = 256;
  uint64_t output_bytes_max = 256 << 10;  // in addition to the bytes in the socket's buffer
  uint64_t grpc_streams_max = 128;
  uint64_t grpc_resets_per_second = 500;      // after a pause, twice as many at once
  uint64_t grpc_header_bytes_max = 64 << 10;  // gRPC refuses calls with more than 8 KiB
  uint64_t http_connections_per_address = 256;
  std::chrono::milliseconds http_request_timeout{5000};  // from its connection, or the answer before it, to its end

  // Parts of what is above.
  uint64_t connections_per_uid() const { return Times(sessions_per_uid, 2); }  // at each door; some have no session yet
  uint64_t namespaces_per_uid() const { return std::max<uint64_t>(64, namespaces / 4); }
  uint64_t watchers_per_uid() const { return std::max<uint64_t>(16, watchers / 4); }
  uint64_t catalogue_shares() const { return std::min<uint64_t>(shares_per_namespace, kCatalogueSharesMax); }
  uint64_t queued_bytes_per_uid() const { return Times(requests_per_uid, 4 << 10); }
  // A call over gRPC takes up to 200 KiB of the daemon's heap, with an unread answer.
  uint64_t grpc_calls_per_uid() const { return std::max<uint64_t>(1, requests_per_uid / 8); }
  uint64_t grpc_bytes_per_uid() const { return Times(requests_per_uid, 16 << 10); }

  static constexpr uint64_t kCatalogueSharesMax = (uint64_t{1} << 26) - 2;  // the slots that a hazard word can hold
  static uint64_t Times(uint64_t value, uint64_t factor) {
    return value > UINT64_MAX / factor ? UINT64_MAX : value * factor;
  }
};

// How the memory of a GPU is shared.
struct GpuTerms {
  uint64_t capacity_percent = 80;                                                // percent of the GPU's memory
  std::vector<HandleKind> kinds = {HandleKind::kCudaVmm, HandleKind::kCudaIpc};  // the preferred one first
  friend bool operator==(const GpuTerms&, const GpuTerms&) = default;
};
struct GpuTable {
  GpuTerms others;
  std::map<std::string, GpuTerms> own;  // by UUID

  const GpuTerms& Of(const std::string& uuid) const {
    const auto found = own.find(uuid);
    return found == own.end() ? others : found->second;
  }
};

struct Config {
  std::string directory;                        // holds the lock and the sockets
  std::string lifeline_path;                    // default <directory>/lifeline.sock
  std::string grpc_path;                        // default <directory>/broker.sock; empty: no Unix socket for gRPC
  std::string admin_path;                       // default <directory>/admin.sock; empty: no admin door
  bool embedded = false;                        // started by a client library: directory 0700, no warm 64 MiB block
  std::chrono::milliseconds exit_when_idle{0};  // 0 = never
  std::chrono::milliseconds linger{300000};     // instead, while named shares have not been read by a call
  std::chrono::milliseconds drain_timeout{10000};
  // How long the lifelines' loop polls, yielding the processor, before it sleeps. With one CPU it polls only the
  // session queues.
  std::chrono::microseconds spin{50};
  int ready_fd = -1;  // the daemon writes "ready\n" to it when both doors are open, then closes it
  int life_fd = -1;   // the daemon ends at EOF; the process that started an embedded broker holds the other end

  std::string memory_backend = "auto";         // auto; cuda: a GPU is required; host: GPUs are not used
  std::vector<std::string> devices = {"all"};  // all, or any of host, cuda:UUID, cuda:N
  uint64_t host_capacity_bytes = 0;            // LoadConfig resolves the percentage
  uint64_t host_cache_bytes = 256ull << 20;
  bool huge_pages = true;            // used where the kernel allows them
  std::string cuda_driver = "auto";  // auto: the system's libcuda.so.1; none; or a library's path
  GpuTable gpus;
  bool cuda_events = true;  // a share may be published with an event before its bytes are written
  Reloadable<uint64_t> namespace_quota_bytes = 0;  // 0 = the capacity of all devices
  std::chrono::milliseconds arena_idle{5000};
  Reloadable<std::chrono::milliseconds> orphan_grace{std::chrono::milliseconds(60000)};
  Reloadable<std::chrono::milliseconds> share_lifetime{std::chrono::milliseconds(0)};  // 0 = unlimited
  Reloadable<bool> withdraw_on_exit = false;
  Reloadable<bool> unlisted_namespaces = true;  // false: only "default" and names with a table are accepted
  AccessList admins;                            // the admin door copies it on a reload
  // By name; each policy is complete. The broker reads them when it is constructed and when it is told to adopt them,
  // on the thread that changes them.
  NamespacePolicies namespaces;
  uint64_t own_arena_bytes_min = 16ull << 20;
  TierTerms tiers;

  std::string http_listen;                   // HOST:PORT; empty: off
  std::vector<std::string> http_hosts;       // accepted in a request's Host, in addition to localhost and addresses
  Reloadable<bool> http_namespaces = false;  // metrics and the status page show names

  Limits limits;
  std::string log_level = "info";
  uint64_t log_lines_per_second = 100;  // per kind of line that clients can cause; further lines are counted
  std::string log_format = "auto";      // auto | text | json | journald
  std::string journal = "/run/systemd/journal/socket";  // socket of systemd's journal
};

// A setting that is in force.
struct ConfigValue {
  std::string key;
  std::string text;
  std::string origin;  // "default", or the flag, the variable, or file, line and column
};

struct Reloaded {
  std::vector<std::string> changed;  // keys whose new values are in force
  std::vector<std::string> kept;     // keys whose new values need a restart
};

}  // namespace arraybridge::daemon

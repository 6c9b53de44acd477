// Config is everything that an operator may choose, as plain validated values; settings.cc says per key what each one
// means. Every limit is checked in one verb or door and has a test that hits it. A reload changes the Live values and
// values that the main thread alone reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/access.h"
#include "daemon/config/live.h"
#include "proto/boundary/handle.h"

namespace arraybridge {

// docs/security.md says whom each of them is charged to. Durations and values that are not Live hold until a restart.
struct Limits {
  Live<uint64_t> sessions = 1024;
  Live<uint64_t> sessions_per_uid = 256;
  Live<uint64_t> leases_per_session = 65536;
  uint64_t catalogue_shares = 65536;
  Live<uint64_t> pinned_bytes_per_session = 0;  // 0 = half of the device's capacity
  Live<uint64_t> leases_per_uid = 1 << 20;
  Live<uint64_t> hold_pages_per_uid = 1024;  // 4 KiB of locked memory each; a session without one reads by calls
  Live<uint64_t> arenas_per_session = 1024;
  Live<uint64_t> shares_per_namespace = 65536;
  Live<uint64_t> shares_per_uid = 131072;  // each takes about a KiB of the daemon's heap
  Live<uint64_t> channels_per_namespace = 256;
  Live<uint64_t> channel_capacity_max = 1024;
  Live<uint64_t> members_per_channel = 64;
  Live<uint64_t> channel_ends_per_session = 512;
  Live<uint64_t> channel_ends_per_uid = 4096;
  Live<uint64_t> session_queues_per_uid = 256;  // 72 KiB each; the other sessions ask by their sockets
  Live<uint64_t> direct_channels_per_uid = 64;  // 256 bytes an entry of the channel
  Live<uint64_t> namespaces = 256;
  Live<uint64_t> namespaces_per_uid = 64;
  Live<uint64_t> arenas_per_uid = 8192;
  Live<uint64_t> descriptors_per_uid = 0;  // 0 = a quarter of all that the daemon may open
  Live<uint64_t> bytes_per_uid = 0;        // 0 = the capacity
  Live<uint64_t> description_bytes_per_uid = 256ull << 20;
  Live<uint64_t> allocation_bytes_max = 0;  // 0 = the device's capacity
  uint64_t name_bytes_max = 255;
  uint64_t names_per_request = 256;
  uint64_t arrays_per_share_max = 1024;
  uint64_t rank_max = 64;
  uint64_t spec_bytes_max = 49152;
  uint64_t structure_bytes_max = 32768;
  uint64_t metadata_bytes_max = 16384;
  uint64_t note_bytes_max = 64;
  Live<uint64_t> history_bytes_per_share = 4096;  // charged to description_bytes_per_uid
  Live<uint64_t> watchers = 64;
  Live<uint64_t> watchers_per_uid = 16;
  Live<uint64_t> events_per_watcher = 4096;
  uint64_t frame_bytes_max = 65536;
  uint64_t descriptors_in_flight_max = 64;        // unread descriptors pile up in the receiver
  uint64_t descriptors_in_flight_per_uid = 1024;  // the kernel counts those of lifelines that have ended too
  Live<uint64_t> output_frames_max = 256;
  Live<uint64_t> output_bytes_max = 256 << 10;  // beyond the bytes that the socket holds
  Live<uint64_t> queued_requests_per_session = 64;
  Live<uint64_t> queued_requests_per_uid = 4096;
  Live<uint64_t> queued_bytes_per_uid = 16ull << 20;
  Live<uint64_t> tickets_per_session_max = 64;
  uint64_t grpc_streams_max = 128;
  uint64_t connections_per_uid = 512;         // connections whose hello is pending included
  uint64_t tcp_connections = 512;             // a new connection replaces the oldest one that made no call
  uint64_t tcp_connections_per_address = 64;  // of an IPv4 address, or of the 64 bits of an IPv6 network
  uint64_t tcp_connections_per_subject = 64;
  uint64_t subjects = 1024;
  uint64_t subject_bytes_max = 4096;
  std::chrono::milliseconds tcp_keepalive{30000};
  std::chrono::milliseconds hello_timeout{5000};
  Live<std::chrono::milliseconds> ticket_lifetime{std::chrono::milliseconds(30000)};
  Live<std::chrono::milliseconds> request_timeout_max{std::chrono::milliseconds(60000)};
};

// Files of the gRPC door over TCP, all in PEM.
struct TlsFiles {
  std::string cert;       // the server's certificate, then the chain up to its authority
  std::string key;        // the private key of that certificate
  std::string client_ca;  // authorities of clients' certificates
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// How the memory of a GPU is shared.
struct GpuTerms {
  uint64_t capacity_percent = 80;                                                // of the GPU's memory
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
  std::string directory;                // of the lock and of the sockets
  std::string lifeline_path;            // default <directory>/lifeline.sock
  std::string grpc_path;                // default <directory>/broker.sock; empty: there is no Unix socket for gRPC
  std::vector<std::string> tcp_listen;  // HOST:PORT of the gRPC door over TCP; empty: there is no such door
  TlsFiles tls;                         // complete if tcp_listen is not empty
  std::string admin_path;               // default <directory>/admin.sock; empty: there is no admin door
  bool embedded = false;                // started by a client library: directory 0700, no warm 64 MiB block
  std::chrono::milliseconds exit_when_idle{0};  // 0 = never
  std::chrono::milliseconds drain_timeout{10000};
  // How long the lifelines' loop polls, yielding, before it sleeps; on one CPU it polls the session queues alone.
  std::chrono::microseconds spin{50};
  int ready_fd = -1;  // the daemon writes "ready\n" here once both doors are open, then closes it
  int life_fd = -1;   // EOF here ends the daemon; the process that started a private broker holds the other end

  std::string memory_backend = "auto";         // auto; cuda: no start without a GPU; host: no GPU is looked for
  std::vector<std::string> devices = {"all"};  // all, or some of host, cuda:UUID, cuda:N
  uint64_t host_capacity_bytes = 0;            // LoadConfig resolves the percentage
  uint64_t host_cache_bytes = 256ull << 20;
  bool huge_pages = true;            // where the kernel allows them
  std::string cuda_driver = "auto";  // auto: the system's libcuda.so.1; none; or the path of a library
  GpuTable gpus;
  bool cuda_events = true;                   // shares may be published with an event, before their bytes are written
  Live<uint64_t> namespace_quota_bytes = 0;  // 0 = the capacity of all devices
  std::chrono::milliseconds arena_idle{5000};
  Live<std::chrono::milliseconds> orphan_grace{std::chrono::milliseconds(60000)};
  Live<std::chrono::milliseconds> share_lifetime{std::chrono::milliseconds(0)};  // 0 = for ever
  Live<bool> withdraw_on_exit = false;
  Live<bool> unlisted_namespaces = true;  // false: a name without a table is refused, except "default"
  AccessList admins;                      // the admin door copies it when it is told to
  // By name; each is complete. The broker reads them when it is made and when it is told to adopt them, on the thread
  // that changes them.
  NamespacePolicies namespaces;
  uint64_t own_arena_bytes_min = 16ull << 20;

  std::string http_listen;              // HOST:PORT; empty: off
  std::vector<std::string> http_hosts;  // accepted names in a request's Host, beside localhost and addresses
  Live<bool> http_namespaces = false;   // metrics and the status page name namespaces

  Limits limits;
  std::string log_level = "info";
  uint64_t log_lines_per_second = 100;                  // of one kind that clients can cause; the rest is counted
  std::string log_format = "auto";                      // auto | text | json | journald
  std::string journal = "/run/systemd/journal/socket";  // the socket of systemd's journal
};

// A setting in force.
struct ConfigValue {
  std::string key;
  std::string text;
  std::string origin;  // "default", or the flag, the variable, or file, line and column
};

struct Reloaded {
  std::vector<std::string> changed;  // keys whose new values are in force
  std::vector<std::string> kept;     // keys with a new value that a restart would put in force
};

}  // namespace arraybridge

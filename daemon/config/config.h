// Config is everything an operator may choose, as plain validated values. Every limit has a name here, is checked in
// one verb or door, and has a test that hits it. main.cc builds it: flags > environment > files > defaults. A reload
// changes what is Live, and what the main thread alone reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/access.h"
#include "daemon/config/live.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct Limits {
  Live<uint64_t> sessions = 1024;
  Live<uint64_t> sessions_per_uid = 256;
  Live<uint64_t> leases_per_session = 65536;
  uint64_t catalogue_shares = 65536;            // per namespace: as many are found without a call
  Live<uint64_t> pinned_bytes_per_session = 0;  // withdrawn ones that it holds; then it is cut; 0 = half the device's
  Live<uint64_t> leases_per_uid = 1 << 20;
  Live<uint64_t> hold_pages_per_uid = 1024;  // 4 KiB each, locked; a session that gets none reads by calls
  Live<uint64_t> arenas_per_session = 1024;
  Live<uint64_t> shares_per_namespace = 65536;
  Live<uint64_t> shares_per_uid = 131072;  // of all namespaces; each takes about a KiB of the daemon's heap
  Live<uint64_t> channels_per_namespace = 256;
  Live<uint64_t> channel_capacity_max = 1024;  // shares
  Live<uint64_t> members_per_channel = 64;     // open ends, of both kinds
  Live<uint64_t> channel_ends_per_session = 512;
  Live<uint64_t> channel_ends_per_uid = 4096;
  Live<uint64_t> rings_per_uid = 64;  // 48 KiB each; who looks for a name has all of its namespace taken first
  Live<uint64_t> roads_per_uid = 64;  // channels whose two ends need no call; the pages of an entry are 256 bytes
  Live<uint64_t> namespaces = 256;
  Live<uint64_t> namespaces_per_uid = 64;
  Live<uint64_t> arenas_per_uid = 8192;  // those of sessions that have gone included, until their bytes are given back
  Live<uint64_t> descriptors_per_uid = 0;  // the daemon's, for its arenas, pages, roads; 0 = a quarter of all
  Live<uint64_t> bytes_per_uid = 0;        // of memory, over all its namespaces; 0 = the capacity
  Live<uint64_t> description_bytes_per_uid = 256ull << 20;  // what makers say of their shares lies in the daemon's heap
  Live<uint64_t> allocation_bytes_max = 0;                  // 0 = the device's capacity
  uint64_t name_bytes_max = 255;
  uint64_t names_per_request = 256;
  uint64_t arrays_per_share_max = 1024;
  uint64_t rank_max = 64;
  uint64_t spec_bytes_max = 49152;
  uint64_t structure_bytes_max = 32768;
  uint64_t metadata_bytes_max = 16384;
  uint64_t note_bytes_max = 64;                   // said with a Publish or Acquire, for who traces
  Live<uint64_t> history_bytes_per_share = 4096;  // who made and read it; of its user's description_bytes_per_uid
  Live<uint64_t> watchers = 64;
  Live<uint64_t> watchers_per_uid = 16;
  Live<uint64_t> events_per_watcher = 4096;  // that it has not read; then it is cut
  uint64_t frame_bytes_max = 65536;
  uint64_t descriptors_in_flight_max = 64;        // per session: unread ones pile up in the receiver
  uint64_t descriptors_in_flight_per_uid = 1024;  // of lifelines that have ended included; the kernel counts them too
  Live<uint64_t> output_frames_max = 256;         // per session: answers nobody reads; then the session is cut
  Live<uint64_t> output_bytes_max = 256 << 10;    // the same in bytes, beyond what the socket holds
  Live<uint64_t> queued_requests_per_session = 64;
  Live<uint64_t> queued_requests_per_uid = 4096;
  Live<uint64_t> queued_bytes_per_uid = 16ull << 20;  // what requests that wait keep in the daemon's heap
  Live<uint64_t> tickets_per_session_max = 64;
  uint64_t grpc_streams_max = 128;     // concurrent calls per gRPC connection
  uint64_t connections_per_uid = 512;  // accepted sockets of both doors, hello pending included
  uint64_t tcp_connections = 512;      // of all who come over TCP; then those that have not shown who they are go first
  uint64_t tcp_connections_per_address = 64;       // of one IPv4 address, or the 64 bits of an IPv6 network
  uint64_t tcp_connections_per_subject = 64;       // that make calls
  uint64_t subjects = 1024;                        // different ones that have ever come
  uint64_t subject_bytes_max = 4096;               // what one certificate calls its owner
  std::chrono::milliseconds tcp_keepalive{30000};  // a peer that is silent for so long is asked, and gone after as long
  std::chrono::milliseconds hello_timeout{5000};
  Live<std::chrono::milliseconds> ticket_lifetime{std::chrono::milliseconds(30000)};
  Live<std::chrono::milliseconds> request_timeout_max{std::chrono::milliseconds(60000)};
};

// Files of what the door over TCP shows and asks for, all in PEM.
struct TlsFiles {
  std::string cert;       // its own, then those between it and its authority
  std::string key;        // its own
  std::string client_ca;  // authorities whose certificates clients may show
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// What holds for the memory of one GPU.
struct GpuTerms {
  uint64_t capacity_percent = 80;  // of it, to hand out
  // The preferred one first; there is no other.
  std::vector<HandleKind> kinds = {HandleKind::kCudaVmm, HandleKind::kCudaIpc};
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
  // Directory of the lock and the sockets: lifeline.sock, broker.sock.
  std::string directory;
  std::string lifeline_path;                    // default <directory>/lifeline.sock
  std::string grpc_path;                        // default <directory>/broker.sock; empty: no gRPC door
  std::vector<std::string> tcp_listen;          // HOST:PORT of the gRPC door over TCP; none: there is no such door
  TlsFiles tls;                                 // of which all are said if tcp_listen is
  std::string admin_path;                       // default <directory>/admin.sock; empty, as if embedded: no admin door
  bool embedded = false;                        // started by a client library: directory 0700, no warm 64 MiB block
  std::chrono::milliseconds exit_when_idle{0};  // 0 = never
  std::chrono::milliseconds drain_timeout{10000};
  // So long the lifelines' loop looks again, yielding, before it sleeps after work; on one CPU into mailboxes alone.
  std::chrono::microseconds spin{50};
  int ready_fd = -1;  // a line "ready\n" is written here once both doors are open, then it is closed
  int life_fd = -1;   // EOF here ends the daemon (a private broker's starter holds the other end)

  std::string memory_backend = "auto";         // auto; cuda: no start without a GPU; host: no GPU is looked for
  std::vector<std::string> devices = {"all"};  // that are served: all, or host, cuda:UUID, cuda:N
  uint64_t host_capacity_bytes = 0;            // resolved: never 0 after LoadConfig
  uint64_t host_cache_bytes = 256ull << 20;
  bool huge_pages = true;            // where the kernel allows it
  std::string cuda_driver = "auto";  // auto: the system's libcuda.so.1; none; or the path of a library
  GpuTable gpus;
  bool cuda_events = true;                   // shares may be published before their bytes are there, with an event
  Live<uint64_t> namespace_quota_bytes = 0;  // 0 = the capacity of all devices
  std::chrono::milliseconds arena_idle{5000};
  Live<std::chrono::milliseconds> orphan_grace{std::chrono::milliseconds(60000)};
  Live<std::chrono::milliseconds> share_lifetime{std::chrono::milliseconds(0)};  // 0 = for ever
  Live<bool> withdraw_on_exit = false;
  Live<bool> unlisted_namespaces = true;  // false: nobody uses a name that has no table, but for "default"
  AccessList admins;                      // whom the admin door serves; read by it when it is told to
  // By name; what a table does not say is the default's. Read by the broker when it is made and when it is told to
  // adopt them, on the thread that changes them.
  NamespacePolicies namespaces;
  uint64_t own_arena_bytes_min = 16ull << 20;

  // HOST:PORT; empty: off.
  std::string http_listen;
  std::vector<std::string> http_hosts;  // by which names it may be asked for, beside localhost and addresses
  Live<bool> http_namespaces = false;   // names of namespaces may be read there, by whoever may connect

  Limits limits;
  std::string log_level = "info";
  uint64_t log_lines_per_second = 100;                  // of one kind that others can cause; the rest is counted
  std::string log_format = "auto";                      // auto | text | json | journald
  std::string journal = "/run/systemd/journal/socket";  // where systemd's journal listens
};

struct ConfigRequest {
  Config config;
  bool print_version = false;
  bool check_only = false;
  std::string help;                            // not empty (help, version, --print-config): print it and exit
  std::map<std::string, std::string> said;     // key -> text, of what somebody said: what a reload compares
  std::map<std::string, std::string> origins;  // key -> where that was
};

// A setting as it holds.
struct ConfigValue {
  std::string key;
  std::string text;
  std::string origin;  // "default", or where it was said
};
// All of them, in the order of the file. Of secrets it says the file alone.
std::vector<ConfigValue> ValuesOf(const ConfigRequest& request);

// Flags over environment (ARRAYBRIDGED_SECTION__KEY) over conf.d/*.toml over the file over defaults. INVALID_ARGUMENT
// names the flag, the variable, or file, line and column, the value and what would be right. NOT_FOUND,
// PERMISSION_DENIED: the file.
Result<ConfigRequest> LoadConfig(int argc, const char* const* argv);

struct Reloaded {
  std::vector<std::string> changed;  // keys whose new values hold from now on
  std::vector<std::string> kept;     // keys that say something else now, which only a restart will hear
};
// The same once more, for a daemon that runs with `running`. All that may change changes, or, if this is refused,
// nothing does. REQUIRES: the arguments of LoadConfig; one thread at a time.
Result<Reloaded> ReloadConfig(int argc, const char* const* argv, ConfigRequest* running);

}  // namespace arraybridge

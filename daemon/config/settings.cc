#include "daemon/config/settings.h"

#include <algorithm>
#include <utility>

#include "daemon/config/access_list.h"
#include "daemon/config/devices.h"
#include "daemon/config/gpu_table.h"
#include "daemon/config/listen.h"
#include "daemon/config/value.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using Sources = Setting::Sources;

// A file that is read again and again is found wherever the daemon stands.
Setting TlsFile(const char* name, std::string TlsFiles::*field, const char* help) {
  std::string flag = std::string("tls-") + name;
  std::ranges::replace(flag, '_', '-');
  return {std::string("server.tls.") + name,
          std::move(flag),
          Sources::kAll,
          "",
          help,
          [field](auto text, Draft& d) { return StorePath(text, &(d.config.tls.*field)); },
          [field](const Config& c) { return c.tls.*field; },
          [field](const Config& from, Config& to) { to.tls.*field = from.tls.*field; }};
}

// What a reload does with a field that may change.
template <class T>
std::function<void(const Config&, Config&)> Adopt(T Config::*field) {
  return [field](const Config& from, Config& to) { to.*field = from.*field; };
}

std::string Shown(milliseconds time) {
  return time.count() % 1000 == 0 ? std::to_string(time.count() / 1000) + "s" : std::to_string(time.count()) + "ms";
}

std::vector<Setting> MakeServer() {
  return {
      {"version",
       "",
       Sources::kFile,
       "1",
       "of this file's form",
       [](auto text, Draft&) { return CheckVersion(text); },
       {}},
      {"server.directory", "directory", Sources::kAll, "", "directory of the lock and the sockets",
       [](auto text, Draft& d) { return StorePath(text, &d.config.directory); },
       [](const Config& c) { return c.directory; }},
      {"server.listen",
       "listen",
       Sources::kAll,
       "",
       "where the gRPC door is: unix:///path, tcp://HOST:PORT (with TLS alone), or off; may be several, with commas "
       "(default: unix://<directory>/broker.sock)",
       [](auto text, Draft& d) { return StoreText(text, &d.listen); },
       WrittenListen,
       {},
       true},
      {"server.lifeline", "lifeline", Sources::kAll, "",
       "path of the local door's socket (default: <directory>/lifeline.sock)",
       [](auto text, Draft& d) { return StorePath(text, &d.config.lifeline_path); },
       [](const Config& c) { return c.lifeline_path; }},
      {"server.admin", "admin", Sources::kAll, "",
       "path of the administration's door, or unix:///path, or off (default: <directory>/admin.sock, off if embedded)",
       [](auto text, Draft& d) { return Store(ReadAdmin(text), &d.admin); },
       [](const Config& c) { return c.admin_path.empty() ? "off" : "unix://" + c.admin_path; }},
      {"server.exit_when_idle", "exit-when-idle", Sources::kAll, "",
       "end so long after the last session; 0s = never (default: 10s if embedded)",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.exit_when_idle); },
       [](const Config& c) { return Shown(c.exit_when_idle); }, Adopt(&Config::exit_when_idle)},
      {"server.drain_timeout",
       "drain-timeout",
       Sources::kAll,
       "10s",
       "how long running calls may take after SIGTERM",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.config.drain_timeout); },
       {},
       Adopt(&Config::drain_timeout)},
      {"server.spin_us",
       "spin-us",
       Sources::kAll,
       "50",
       "microseconds to look for more work, yielding, before sleeping; 0 = never, and no mailboxes",
       [](auto text, Draft& d) { return StoreSpin(text, &d.config.spin); },
       {}},
      {"server.embedded",
       "embedded",
       Sources::kFlagOnly,
       "false",
       "started by a client library: private directory, ends when idle, reads no file",
       [](auto text, Draft& d) { return StoreBool(text, &d.config.embedded); },
       {},
       {},
       false,
       true},
      {"server.ready_fd", "ready-fd", Sources::kFlagOnly, "",
       "descriptor to write \"ready\" to once both doors are open",
       [](auto text, Draft& d) { return StoreFd(text, &d.config.ready_fd); },
       [](const Config& c) { return std::to_string(c.ready_fd); }},
      {"server.life_fd", "life-fd", Sources::kFlagOnly, "", "descriptor whose end of file ends the daemon",
       [](auto text, Draft& d) { return StoreFd(text, &d.config.life_fd); },
       [](const Config& c) { return std::to_string(c.life_fd); }},
      TlsFile("cert", &TlsFiles::cert, "file of the certificate that the TCP door shows, PEM; needed for tcp://"),
      TlsFile("key", &TlsFiles::key, "file of its private key, PEM, not for everybody to read"),
      TlsFile("client_ca", &TlsFiles::client_ca, "file of the authorities of clients' certificates, PEM"),
  };
}

std::vector<Setting> MakeMemory() {
  return {
      {"memory.backend",
       "backend",
       Sources::kAll,
       "auto",
       "auto (GPUs where there are some), cuda (no start without one), host (no GPU is looked for)",
       [](auto text, Draft& d) {
         return StoreOneOf({"auto", "cuda", "host"}, text, &d.config.memory_backend);
       },
       {}},
      {"memory.devices",
       "device",
       Sources::kAll,
       "all",
       "what is served: all, or host and GPUs as cuda:UUID, the flag as cuda:N too; may be several, with commas",
       [](auto text, Draft& d) { return Store(ReadDevices(text), &d.config.devices); },
       {},
       {},
       true},
      {"memory.host.capacity",
       "host-capacity",
       Sources::kAll,
       "50%",
       "host memory to hand out, bytes or % of what the machine has to spare",
       [](auto text, Draft& d) { return Store(ReadBytesOrPercent(text), &d.host_capacity); },
       {}},
      {"memory.host.hugepages",
       "hugepages",
       Sources::kAll,
       "auto",
       "auto (where the kernel allows them) or never",
       [](auto text, Draft& d) { return StoreAuto(text, &d.config.huge_pages); },
       {}},
      {"memory.host.cache",
       "cache",
       Sources::kAll,
       "256MiB",
       "bytes of fresh memory populated ahead of demand",
       [](auto text, Draft& d) { return Store(ReadBytes(text), &d.config.host_cache_bytes); },
       {}},
      {"memory.host.own_arena",
       "own-arena",
       Sources::kAll,
       "16MiB",
       "arrays of at least so many bytes get an arena of their own",
       [](auto text, Draft& d) { return Store(ReadBytes(text), &d.config.own_arena_bytes_min); },
       {}},
      {"memory.host.arena_idle",
       "arena-idle",
       Sources::kAll,
       "5s",
       "clients give back what they have not used for so long",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.config.arena_idle); },
       {}},
      {"memory.cuda.driver",
       "cuda-driver",
       Sources::kFile,
       "auto",
       "auto (the system's, if there is one), none, or a library's path or name",
       [](auto text, Draft& d) { return StoreCudaDriver(text, &d.config.cuda_driver); },
       {}},
      {"memory.cuda.capacity",
       "cuda-capacity",
       Sources::kAll,
       "80%",
       "how much of each GPU's memory to hand out, in %",
       [](auto text, Draft& d) { return Store(ReadCapacityPercent(text), &d.config.gpus.others.capacity_percent); },
       {}},
      {"memory.cuda.kinds",
       "",
       Sources::kAll,
       "cuda_vmm,cuda_ipc",
       "how GPU memory is shared, the preferred way first: cuda_vmm, cuda_ipc; what is not listed is refused",
       [](auto text, Draft& d) { return Store(ReadGpuKinds(text), &d.config.gpus.others.kinds); },
       {},
       {},
       true},
      {"memory.cuda.events",
       "cuda-events",
       Sources::kAll,
       "auto",
       "auto (readers wait for interprocess events where those work) or never (makers wait for their bytes)",
       [](auto text, Draft& d) { return StoreAuto(text, &d.config.cuda_events); },
       {}},
      {"namespace.default.quota",
       "namespace-quota",
       Sources::kAll,
       "100%",
       "bytes that one namespace may hold, or % of the capacity",
       [](auto text, Draft& d) { return Store(ReadBytesOrPercent(text), &d.namespace_quota); },
       {},
       Adopt(&Config::namespace_quota_bytes)},
      {"namespace.default.orphan_grace",
       "orphan-grace",
       Sources::kAll,
       "60s",
       "an unnamed share outlives its maker by so long",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.config.orphan_grace); },
       {},
       Adopt(&Config::orphan_grace)},
      {"namespace.default.share_lifetime",
       "",
       Sources::kAll,
       "0s",
       "a share loses its name so long after it was published; 0s = never",
       [](auto text, Draft& d) { return Store(ReadDuration(text), &d.config.share_lifetime); },
       {},
       Adopt(&Config::share_lifetime)},
      {"namespace.default.on_publisher_exit",
       "",
       Sources::kAll,
       "keep",
       "keep or withdraw: what becomes of shares when the session that published them ends",
       [](auto text, Draft& d) { return Store(ReadOnPublisherExit(text), &d.config.withdraw_on_exit); },
       {},
       Adopt(&Config::withdraw_on_exit)},
      {"namespace.default.access",
       "",
       Sources::kAll,
       "same_uid",
       "same_uid: every user has a namespace of each name to himself; [namespace.NAME] shares one",
       [](auto text, Draft&) { return CheckDefaultAccess(text); },
       {},
       {},
       true},
      {"access.unlisted",
       "",
       Sources::kAll,
       "own",
       "own or refused: what a name is that has no [namespace.NAME]; \"default\" is everybody's own",
       [](auto text, Draft& d) { return StoreUnlisted(text, &d.config.unlisted_namespaces); },
       {},
       Adopt(&Config::unlisted_namespaces)},
      {"access.admins", "", Sources::kAll, "",
       "who may administer; entries as of access (default: root, the daemon's user, @arraybridge-admin if there is "
       "such a group)",
       [](auto text, Draft& d) { return StoreAdmins(text, &d.config.admins); },
       [](const Config& c) { return Written(c.admins); }, Adopt(&Config::admins), true},
      {"http.listen", "http", Sources::kAll, "",
       "HOST:PORT of /metrics, /healthz, /readyz and the status page, or off (default: 127.0.0.1:9464 for the system's "
       "daemon, else off)",
       [](auto text, Draft& d) { return Store(ReadHttp(text), &d.http); },
       [](const Config& c) { return c.http_listen.empty() ? "off" : c.http_listen; }},
      {"http.public",
       "http-public",
       Sources::kAll,
       "false",
       "let that be another address than this host's loopback: whoever reaches it reads it, without a password",
       [](auto text, Draft& d) { return StoreBool(text, &d.http_public); },
       {},
       {},
       false,
       true},
      {"http.hosts",
       "",
       Sources::kAll,
       "",
       "names by which that may be asked for (the Host of a request), beside localhost and addresses; may be several, "
       "with "
       "commas",
       [](auto text, Draft& d) { return StoreHosts(text, &d.config.http_hosts); },
       [](const Config& c) { return WrittenHosts(c.http_hosts); },
       {},
       true},
      {"http.namespaces",
       "",
       Sources::kAll,
       "false",
       "tell namespaces by name there, not by user alone: whoever may connect reads them",
       [](auto text, Draft& d) {
         bool told = false;
         AB_RETURN_IF_ERROR(StoreBool(text, &told));
         return d.config.http_namespaces = told, Ok();
       },
       {},
       Adopt(&Config::http_namespaces)},
      {"log.level",
       "log-level",
       Sources::kAll,
       "info",
       "debug, info, warn, error, off",
       [](auto text, Draft& d) {
         return StoreOneOf({"debug", "info", "warn", "error", "off"}, text, &d.config.log_level);
       },
       {},
       Adopt(&Config::log_level)},
      {"log.format",
       "log-format",
       Sources::kAll,
       "auto",
       "auto, text, json, journald",
       [](auto text, Draft& d) {
         return StoreOneOf({"auto", "text", "json", "journald"}, text, &d.config.log_format);
       },
       {},
       Adopt(&Config::log_format)},
      {"log.rate_limit_per_s",
       "",
       Sources::kAll,
       "100",
       "lines a second of one kind that others cause at will; of more the number alone is told",
       [](auto text, Draft& d) { return StoreLineRate(text, &d.config.log_lines_per_second); },
       {},
       Adopt(&Config::log_lines_per_second)},
      {"log.journal",
       "",
       Sources::kAll,
       "/run/systemd/journal/socket",
       "where systemd's journal listens, for the format journald",
       [](auto text, Draft& d) { return StoreText(text, &d.config.journal); },
       {}},
  };
}

// A limit that a reload changes is Live.
template <class T>
void MayChange(Setting&, T Limits::*) {}
template <class T>
void MayChange(Setting& setting, Live<T> Limits::*field) {
  setting.adopt = [field](const Config& from, Config& to) { to.limits.*field = from.limits.*field; };
}

template <class T, class Read>
Setting Limit(const char* name, T Limits::*field, std::string fallback, const char* help, Read read) {
  Setting setting{std::string("limits.") + name,
                  "",
                  Sources::kAll,
                  std::move(fallback),
                  help,
                  [field, read](auto text, Draft& d) { return Store(read(text), &(d.config.limits.*field)); },
                  {}};
  MayChange(setting, field);
  return setting;
}

template <class T>
Setting Number(const char* name, T Limits::*field, const char* help) {
  return Limit(name, field, std::to_string(Limits{}.*field), help, ReadNumber);
}

template <class T>
Setting Bytes(const char* name, T Limits::*field, const char* help) {
  return Limit(name, field, std::to_string(Limits{}.*field), help, ReadBytes);
}

template <class T>
Setting Time(const char* name, T Limits::*field, const char* help) {
  return Limit(name, field, Shown(Limits{}.*field), help, ReadDuration);
}

std::vector<Setting> MakeLimits() {
  return {
      Number("sessions", &Limits::sessions, "connected client processes"),
      Number("sessions_per_uid", &Limits::sessions_per_uid, "of one user"),
      Number("leases_per_session", &Limits::leases_per_session, "arrays that one session reads at a time"),
      Number("leases_per_uid", &Limits::leases_per_uid, "arrays that the sessions of one user read at a time"),
      Number("hold_pages_per_uid", &Limits::hold_pages_per_uid,
             "hazard pages of one user: one a session and namespace that it reads without calls"),
      Number("catalogue_shares", &Limits::catalogue_shares, "shares of a namespace that are found without a call"),
      Bytes("pinned_bytes_per_session", &Limits::pinned_bytes_per_session,
            "withdrawn ones that it holds; then it is cut; 0 = half its device's capacity"),
      Number("arenas_per_session", &Limits::arenas_per_session, "arenas that one session writes"),
      Number("arenas_per_uid", &Limits::arenas_per_uid, "those of sessions that have gone included"),
      Number("descriptors_per_uid", &Limits::descriptors_per_uid,
             "of the daemon, kept open for one user; 0 = a quarter of all that it may open"),
      Number("shares_per_namespace", &Limits::shares_per_namespace, "published arrays under one namespace"),
      Number("shares_per_uid", &Limits::shares_per_uid, "of one user, over all namespaces"),
      Number("channels_per_namespace", &Limits::channels_per_namespace, "that somebody has open"),
      Number("channel_capacity_max", &Limits::channel_capacity_max, "shares that wait in one channel"),
      Number("members_per_channel", &Limits::members_per_channel, "open ends of one channel, of both kinds"),
      Number("channel_ends_per_session", &Limits::channel_ends_per_session, "open ends of channels, of one session"),
      Number("channel_ends_per_uid", &Limits::channel_ends_per_uid, "of one user"),
      Number("rings_per_uid", &Limits::rings_per_uid, "sessions of one user that publish without calls"),
      Number("roads_per_uid", &Limits::roads_per_uid, "channels of one user that send without calls"),
      Number("namespaces", &Limits::namespaces, "with something in them"),
      Number("namespaces_per_uid", &Limits::namespaces_per_uid, "of one user"),
      Bytes("bytes_per_uid", &Limits::bytes_per_uid, "of memory, over all namespaces; 0 = the capacity"),
      Bytes("description_bytes_per_uid", &Limits::description_bytes_per_uid, "what makers say of their shares"),
      Bytes("allocation_bytes_max", &Limits::allocation_bytes_max, "one arena; 0 = the device"),
      Bytes("name_bytes_max", &Limits::name_bytes_max, "one name"),
      Number("names_per_request", &Limits::names_per_request, "shares in one request"),
      Number("arrays_per_share_max", &Limits::arrays_per_share_max, "arrays in one share"),
      Number("rank_max", &Limits::rank_max, "dimensions of an array"),
      Bytes("spec_bytes_max", &Limits::spec_bytes_max, "all ArraySpecs of one share"),
      Bytes("structure_bytes_max", &Limits::structure_bytes_max, "the structure of a share's tree"),
      Bytes("metadata_bytes_max", &Limits::metadata_bytes_max, "the user's own bytes of a share"),
      Bytes("note_bytes_max", &Limits::note_bytes_max, "what is said with a Publish or Acquire, for who traces"),
      Bytes("history_bytes_per_share", &Limits::history_bytes_per_share, "who made and read it"),
      Number("watchers", &Limits::watchers, "watches that are open, of all users"),
      Number("watchers_per_uid", &Limits::watchers_per_uid, "of one user"),
      Number("events_per_watcher", &Limits::events_per_watcher, "that it has not read; then it is cut"),
      Bytes("frame_bytes_max", &Limits::frame_bytes_max, "one message of the local door"),
      Number("descriptors_in_flight_max", &Limits::descriptors_in_flight_max, "unread ones, of one session"),
      Number("descriptors_in_flight_per_uid", &Limits::descriptors_in_flight_per_uid, "unread ones, of one user"),
      Number("output_frames_max", &Limits::output_frames_max, "answers that a session does not read"),
      Bytes("output_bytes_max", &Limits::output_bytes_max, "the same in bytes"),
      Number("queued_requests_per_session", &Limits::queued_requests_per_session, "requests that wait"),
      Number("queued_requests_per_uid", &Limits::queued_requests_per_uid, "the same, of one user"),
      Bytes("queued_bytes_per_uid", &Limits::queued_bytes_per_uid, "what they keep in memory, of one user"),
      Number("tickets_per_session_max", &Limits::tickets_per_session_max, "tickets not yet redeemed"),
      Number("grpc_streams_max", &Limits::grpc_streams_max, "concurrent calls of one gRPC connection"),
      Number("connections_per_uid", &Limits::connections_per_uid, "sockets of both doors, of one user"),
      Number("tcp_connections", &Limits::tcp_connections, "sockets of all who come over TCP"),
      Number("tcp_connections_per_address", &Limits::tcp_connections_per_address,
             "of one IPv4 address, or one IPv6 network of 64 bits"),
      Number("tcp_connections_per_subject", &Limits::tcp_connections_per_subject,
             "that make calls, of one certificate"),
      Number("subjects", &Limits::subjects, "different certificates' subjects that have ever come"),
      Bytes("subject_bytes_max", &Limits::subject_bytes_max, "the names in one certificate"),
      Time("tcp_keepalive", &Limits::tcp_keepalive, "a silent TCP peer is asked then, and gone after as long"),
      Time("hello_timeout", &Limits::hello_timeout, "until a connection has said who it is"),
      Time("ticket_lifetime", &Limits::ticket_lifetime, "of a ticket nobody redeems"),
      Time("request_timeout_max", &Limits::request_timeout_max, "the longest wait of one request"),
  };
}

}  // namespace

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = [] {
    std::vector<Setting> all = MakeServer();
    for (auto part : {MakeMemory(), MakeLimits()}) std::move(part.begin(), part.end(), std::back_inserter(all));
    return all;
  }();
  return settings;
}

const Setting* FindSetting(std::string_view key) {
  const auto& all = Settings();
  const auto found = std::find_if(all.begin(), all.end(), [key](const Setting& each) { return each.key == key; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace arraybridge

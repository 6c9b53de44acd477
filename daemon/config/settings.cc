// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/settings.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "daemon/config/access_list.h"
#include "daemon/config/devices.h"
#include "daemon/config/limits.h"
#include "daemon/config/listen.h"
#include "daemon/config/tiers/tier_settings.h"
#include "daemon/config/value.h"
#include "daemon/config/words.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::milliseconds;
using Sources = Setting::Sources;

Value Time(milliseconds Config::*field) { return In(field, ReadDuration); }

template <class Field>
Value Choice(Field field, std::span<const BoolWord> words) {
  const auto read = [words](std::string_view text) { return ReadBool(text, words); };
  const Config defaults;
  const bool usual = std::invoke(field, defaults);
  return In(field, read, std::string(words[0].value == usual ? words[0].word : words[1].word));
}

Value OneOf(std::string Config::*field, const std::vector<std::string_view>& words) {
  return In(field, [words](std::string_view text) { return ReadOneOf(text, words); });
}

// The default depends on other settings, or there is none.
template <class Field>
Value Path(Field field, std::string example) {
  return In(field, ReadPath, "").ShownAs(std::move(example), [field](const Config& c) {
    return std::invoke(field, c);
  });
}

// `right`: the allowed texts, for an error.
template <class T>
Value Whole(T Config::*field, uint64_t least, uint64_t most, std::string fallback, std::string_view right) {
  const auto read = [least, most, right](std::string_view text) -> Result<T> {
    AB_ASSIGN_OR_RETURN(const auto number, ReadNumberIn(text, least, most, right));
    return static_cast<T>(number);
  };
  return In(field, read, std::move(fallback));
}

Value Descriptor(int Config::*field) { return Whole(field, 0, 1 << 20, "", "a descriptor's number"); }

// A setting with a single allowed text. `why`: the end of the error for any other text.
Value Only(std::string_view right, std::string_view why) {
  Value value;
  value.read = [right, why](std::string_view text, const std::string&, Draft&) {
    return text == right ? Ok() : InvalidArgument("'", text, "' ", why);
  };
  value.fallback = right;
  return value;
}

template <class T, class Read>
Value OfNamespace(Value usual, T NamespaceDraft::*own, Read read) {
  return WithTables(std::move(usual), &Draft::namespaces, own, read);
}

template <class Field, class T, class Read>
Value OfGpu(Field field, T GpuDraft::*own, Read read, std::string fallback) {
  const auto usual = [field](auto& config) -> auto& { return config.gpus.others.*field; };
  return WithTables(In(usual, read, std::move(fallback)), &Draft::gpus, own, read);
}

std::string ShownListen(const Config& config) { return WrittenSocket(config.grpc_path); }
std::string ShownAdmin(const Config& config) { return WrittenSocket(config.admin_path); }
std::string ShownHttp(const Config& config) { return config.http_listen.empty() ? "off" : config.http_listen; }

constexpr char kDefaultAccess[] =
    "is not same_uid: a namespace without a table is private to each user; to share a namespace, set access in its "
    "table [namespace.NAME]";
constexpr BoolWord kKeepWithdraw[] = {{"keep", false}, {"withdraw", true}};
constexpr BoolWord kOwnRefused[] = {{"own", true}, {"refused", false}};

Result<bool> ReadTrueFalse(std::string_view text) { return ReadBool(text, kTrueFalse); }
Result<bool> ReadOnPublisherExit(std::string_view text) { return ReadBool(text, kKeepWithdraw); }
Result<std::string> ReadText(std::string_view text) { return std::string(text); }

std::vector<Setting> ServerSettings() {
  return {
      {"version", "", Only("1", "is not a version of the file that this daemon supports; it supports 1"),
       "version of this file's format", "", Sources::kFile},
      {"server.directory", "directory", Path(&Config::directory, "/run/arraybridge"),
       "directory of the lock and the sockets"},
      {"server.listen", "listen",
       InDraft(&Draft::listen, ReadSocket).ShownAs("/run/arraybridge/broker.sock", ShownListen),
       "path of the gRPC door's socket, or unix:///path, or off (default: <directory>/broker.sock)"},
      {"server.lifeline", "lifeline", Path(&Config::lifeline_path, "/run/arraybridge/lifeline.sock"),
       "path of the local door's socket (default: <directory>/lifeline.sock)"},
      {"server.admin", "admin", InDraft(&Draft::admin, ReadSocket).ShownAs("/run/arraybridge/admin.sock", ShownAdmin),
       "path of the admin door's socket, or unix:///path, or off (default: <directory>/admin.sock, off if embedded)"},
      {"server.exit_when_idle", "exit-when-idle",
       Adopting(&Config::exit_when_idle, InDraft(&Draft::exit_when_idle, ReadDuration))
           .Reloads()
           .ShownAs("0s", [](const Config& c) { return WrittenDuration(c.exit_when_idle); }),
       "time without sessions after which the daemon exits; 0s = never (default: 10s if embedded)"},
      {"server.linger", "linger", Time(&Config::linger).Reloads(),
       "time without sessions after which it exits although named shares have not been read by a process"},
      {"server.drain_timeout", "drain-timeout", Time(&Config::drain_timeout).Reloads(),
       "time for running calls to finish after SIGTERM"},
      {"server.spin_us", "spin-us", Whole(&Config::spin, 0, 1000, "50", "0 to 1000 microseconds"),
       "microseconds to poll for more work, yielding the processor, before sleeping; 0 = never"},
      {"server.embedded", "embedded", Choice(&Config::embedded, kTrueFalse).Switch(),
       "started by a client library: private directory, exits when idle, reads no file", "", Sources::kFlagOnly},
      {"server.ready_fd", "ready-fd", Descriptor(&Config::ready_fd),
       "descriptor to write \"ready\" to once both doors are open", "", Sources::kFlagOnly},
      {"server.life_fd", "life-fd", Descriptor(&Config::life_fd),
       "descriptor; the daemon exits when it reads end of file from it", "", Sources::kFlagOnly},
  };
}

std::vector<Setting> MemorySettings() {
  return {
      {"memory.backend", "backend", OneOf(&Config::memory_backend, {"auto", "cuda", "host"}),
       "memory to serve: auto (GPUs if there are any), cuda (a GPU is required), host (no GPUs)",
       "Each of them serves host memory too. With host no driver is loaded."},
      {"memory.devices", "device", In(&Config::devices, ReadDevices).List(),
       "devices to serve: all, or host and GPUs as cuda:UUID (the flag accepts cuda:N too); comma-separated",
       "A missing device is an error at the start."},
      {"memory.host.capacity", "host-capacity", InDraft(&Draft::host_capacity, ReadBytesOrPercent, "50%"),
       "host memory to hand out, in bytes or in % of the machine's available memory"},
      {"memory.host.hugepages", "hugepages", Choice(&Config::huge_pages, kAutoNever),
       "huge pages: auto (where the kernel allows them) or never"},
      {"memory.host.cache", "cache", In(&Config::host_cache_bytes, ReadBytes, "256MiB"),
       "bytes of fresh memory to populate ahead of demand"},
      {"memory.host.own_arena", "own-arena", In(&Config::own_arena_bytes_min, ReadBytes, "16MiB"),
       "minimum size of an array that gets its own arena"},
      {"memory.host.arena_idle", "arena-idle", Time(&Config::arena_idle),
       "time after which clients return unused memory"},
      {"memory.cuda.driver", "cuda-driver", In(&Config::cuda_driver, ReadCudaDriver),
       "driver: auto (the system's, if there is one), none, or the path or name of a library",
       "A path must be absolute; a name, such as libcuda.so.1, is looked up by the dynamic linker.", Sources::kFile},
      {"memory.cuda.capacity", "cuda-capacity",
       OfGpu(&GpuTerms::capacity_percent, &GpuDraft::capacity_percent, ReadCapacityPercent, "80%"),
       "part of each GPU's memory to hand out, in %"},
      {"memory.cuda.kinds", "", OfGpu(&GpuTerms::kinds, &GpuDraft::kinds, ReadGpuKinds, "cuda_vmm,cuda_ipc").List(),
       "ways to share GPU memory, the preferred one first: cuda_vmm, cuda_ipc; ways that are not listed are refused"},
      {"memory.cuda.events", "cuda-events", Choice(&Config::cuda_events, kAutoNever),
       "interprocess events: auto (readers wait for them where they work) or never (producers wait for their bytes)"},
  };
}

std::vector<Setting> NamespaceSettings() {
  using Namespace = NamespaceDraft;
  const auto quota =
      Adopting(&Config::namespace_quota_bytes, InDraft(&Draft::namespace_quota, ReadBytesOrPercent, "100%"));
  return {
      {"namespace.default.quota", "namespace-quota", OfNamespace(quota, &Namespace::quota, ReadBytesOrPercent),
       "bytes that a namespace may hold, or % of the capacity"},
      {"namespace.default.orphan_grace", "orphan-grace",
       OfNamespace(In(&Config::orphan_grace, ReadDuration), &Namespace::orphan_grace, ReadDuration),
       "time that an unnamed share outlives its producer"},
      {"namespace.default.share_lifetime", "",
       OfNamespace(In(&Config::share_lifetime, ReadDuration), &Namespace::share_lifetime, ReadDuration),
       "time after publication until a share loses its name; 0s = never"},
      {"namespace.default.on_publisher_exit", "",
       OfNamespace(Choice(&Config::withdraw_on_exit, kKeepWithdraw), &Namespace::withdraw_on_exit, ReadOnPublisherExit),
       "effect of the end of a session on its shares: keep or withdraw"},
      {"namespace.default.access", "",
       OfNamespace(Only(kSameUid, kDefaultAccess), &Namespace::access, ReadAccessList).List(),
       "users of a namespace: same_uid (each user has a private one); a table [namespace.NAME] shares one"},
  };
}

std::vector<Setting> OtherSettings() {
  return {
      {"access.unlisted", "", Choice(&Config::unlisted_namespaces, kOwnRefused),
       "namespaces without a table [namespace.NAME]: own (each user has a private one) or refused; \"default\" is "
       "always own"},
      {"access.admins", "",
       In(&Config::admins, ReadAdmins, "")
           .List()
           .Reloads()
           .ShownAs("root,@arraybridge-admin", [](const Config& c) { return Written(c.admins); }),
       "administrators: entries as in access, without tokens; :ro may only look (default: root, the "
       "daemon's user, @arraybridge-admin if that group exists)",
       "The group arraybridge-admin may be missing if there is another entry; any other missing name is an "
       "error."},
      {"http.listen", "http", InDraft(&Draft::http, ReadHttp).ShownAs("127.0.0.1:9464", ShownHttp),
       "HOST:PORT of /metrics, /healthz, /readyz and the status page, or off (default: 127.0.0.1:9464 for the system's "
       "daemon, else off)",
       "An address that is not a loopback address is refused unless http.public is true."},
      {"http.public", "http-public", InDraft(&Draft::http_public, ReadTrueFalse, "false").Switch(),
       "allow an address that is not a loopback address; every host that reaches it can read it without a password"},
      {"http.hosts", "",
       In(&Config::http_hosts, ReadHosts, "")
           .List()
           .ShownAs("gpu7.example.org", [](const Config& c) { return TextOf(c.http_hosts); }),
       "names that are accepted in a request's Host, in addition to localhost and addresses; comma-separated",
       "A request with any other name is answered 421, so that a web page of another site cannot read this page "
       "through "
       "a name that resolves to this host."},
      {"http.namespaces", "http-namespaces", Choice(&Config::http_namespaces, kTrueFalse).Switch(),
       "show namespaces, shares, channels and processes by name, in addition to users: every reader of the page sees "
       "them"},
      {"log.level", "log-level", OneOf(&Config::log_level, {"debug", "info", "warn", "error", "off"}).Reloads(),
       "level of the log: debug, info, warn, error, off"},
      {"log.format", "log-format", OneOf(&Config::log_format, {"auto", "text", "json", "journald"}).Reloads(),
       "format of the log: auto, text, json, journald"},
      {"log.rate_limit_per_s", "",
       Whole(&Config::log_lines_per_second, 1, UINT64_MAX, "100", "1 or more lines per second").Reloads(),
       "lines per second of one kind that clients can cause; further lines are counted"},
      {"log.journal", "", In(&Config::journal, ReadText), "socket of systemd's journal, for the format journald"},
  };
}

}  // namespace

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = [] {
    std::vector<Setting> all = ServerSettings();
    for (auto part : {MemorySettings(), TierSettings(), NamespaceSettings(), OtherSettings(), LimitSettings()}) {
      std::ranges::move(part, std::back_inserter(all));
    }
    return all;
  }();
  return settings;
}

const Setting* FindSetting(std::string_view key) {
  const auto found = std::ranges::find(Settings(), key, &Setting::key);
  return found == Settings().end() ? nullptr : &*found;
}

std::optional<TableKey> SplitTableKey(const std::string& key) {
  const size_t dot = key.rfind('.');
  const auto between = [&](size_t prefix) { return dot > prefix ? key.substr(prefix, dot - prefix) : std::string(); };
  constexpr std::string_view kNamespace = "namespace.";
  constexpr std::string_view kMemory = "memory.";
  if (key.starts_with(kNamespace) && dot >= kNamespace.size()) {
    std::string name = between(kNamespace.size());
    if (name == "default") return std::nullopt;
    return TableKey{"namespace.default" + key.substr(dot), std::move(name), true};
  }
  const std::string gpu = key.starts_with(kMemory) ? between(kMemory.size()) : "";
  if (!gpu.starts_with("GPU-") && !gpu.starts_with("MIG-")) return std::nullopt;
  return TableKey{"memory.cuda" + key.substr(dot), gpu, false};
}

}  // namespace arraybridge::daemon

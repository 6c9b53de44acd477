// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <grp.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace arraybridge::daemon {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGpuDevice[] = "cuda:GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00";

using Variables = std::map<std::string, std::string>;

Result<ConfigRequest> Load(std::vector<const char*> flags, const Variables& variables = {}) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  flags.insert(flags.begin(), "arraybridged");
  auto request = LoadConfig(static_cast<int>(flags.size()), flags.data());
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  return request;
}

Config Good(std::vector<const char*> flags, const Variables& variables = {}) {
  const auto request = Load(std::move(flags), variables);
  EXPECT_TRUE(request.ok()) << request.status().ToString();
  return request.ok() ? request->config : Config{};
}

std::string Refusal(std::vector<const char*> flags, const Variables& variables = {}) {
  const auto request = Load(std::move(flags), variables);
  EXPECT_EQ(request.status().code(), Code::kInvalidArgument);
  return request.status().message();
}

TEST(ConfigTest, DefaultsAreResolved) {
  const Config config = Good({"--directory", "/d"});
  EXPECT_EQ(config.lifeline_path, "/d/lifeline.sock");
  EXPECT_EQ(config.grpc_path, "/d/broker.sock");
  EXPECT_GT(config.host_capacity_bytes, 0u);
  EXPECT_EQ(config.exit_when_idle, milliseconds(0));
  EXPECT_EQ(config.ready_fd, -1);
  EXPECT_EQ(config.limits.frame_bytes_max, 65536u);
}

TEST(ConfigTest, FlagsBeatTheEnvironmentWhichBeatsDefaults) {
  const Variables variables = {{"ARRAYBRIDGED_MEMORY__HOST__CACHE", "1MiB"}, {"ARRAYBRIDGED_LOG__LEVEL", "warn"}};
  const Config config = Good({"--cache", "2MiB"}, variables);
  EXPECT_EQ(config.host_cache_bytes, 2u << 20);
  EXPECT_EQ(config.log_level, "warn");
}

TEST(ConfigTest, UnitsAreRead) {
  const Config config = Good({"--host-capacity", "8GiB", "--namespace-quota", "25%", "--orphan-grace", "500ms",
                              "--arena-idle", "2m", "--drain-timeout", "0", "--spin-us", "20"});
  EXPECT_EQ(config.host_capacity_bytes, 8ull << 30);
  EXPECT_EQ(config.namespace_quota_bytes, 2ull << 30);
  EXPECT_EQ(config.orphan_grace, milliseconds(500));
  EXPECT_EQ(config.arena_idle, milliseconds(120'000));
  EXPECT_EQ(config.drain_timeout, milliseconds(0));
  EXPECT_EQ(config.spin, std::chrono::microseconds(20));
}

TEST(ConfigTest, ASpinIsShort) {
  EXPECT_EQ(Good({"--spin-us", "0"}).spin.count(), 0);
  EXPECT_EQ(Refusal({"--spin-us", "1001"}), "--spin-us: '1001' is not 0 to 1000 microseconds");
}

TEST(ConfigTest, AnEmbeddedDaemonExitsWhenIdleByDefault) {
  EXPECT_EQ(Good({"--embedded"}).exit_when_idle, milliseconds(10'000));
  EXPECT_EQ(Good({"--embedded=false"}).exit_when_idle, milliseconds(0));
  EXPECT_EQ(Good({"--embedded", "--exit-when-idle", "0s"}).exit_when_idle, milliseconds(0));
  EXPECT_EQ(Good({"--embedded"}, {{"ARRAYBRIDGED_SERVER__EXIT_WHEN_IDLE", "3s"}}).exit_when_idle, milliseconds(3000));
}

TEST(ConfigTest, AReloadKeepsTheCapacityThatTheDaemonHas) {
  const char* const arguments[] = {"arraybridged", "--host-capacity", "1%"};
  auto running = LoadConfig(3, arguments);
  ASSERT_TRUE(running.ok());
  running->config.host_capacity_bytes = 400 << 20;  // the value of 1 % when the daemon started
  ::setenv("ARRAYBRIDGED_NAMESPACE__DEFAULT__QUOTA", "25%", 1);
  const auto reloaded = ReloadConfig(3, arguments, &*running);
  ::unsetenv("ARRAYBRIDGED_NAMESPACE__DEFAULT__QUOTA");
  ASSERT_TRUE(reloaded.ok()) << reloaded.status().ToString();
  EXPECT_THAT(reloaded->changed, ::testing::ElementsAre("namespace.default.quota"));
  EXPECT_THAT(reloaded->kept, ::testing::IsEmpty());
  EXPECT_EQ(running->config.namespace_quota_bytes, 100u << 20);
}

TEST(ConfigTest, DevicesAreNamed) {
  EXPECT_THAT(Good({}).devices, ElementsAre("all"));
  EXPECT_EQ(Good({}).memory_backend, "auto");
  const Config config = Good({"--device", "host", "--device", kGpuDevice, "--device", "cuda:1", "--backend", "cuda"});
  EXPECT_THAT(config.devices, ElementsAre("host", kGpuDevice, "cuda:1"));
  EXPECT_EQ(config.memory_backend, "cuda");
  EXPECT_THAT(Good({}, {{"ARRAYBRIDGED_MEMORY__DEVICES", std::string("host, ") + kGpuDevice}}).devices,
              ElementsAre("host", kGpuDevice));
  for (const char* wrong : {"", "cpu", "cuda", "cuda:", "cuda:-1", "cuda:01", "cuda:GPU-7", "host,"}) {
    EXPECT_THAT(Refusal({"--device", wrong}), HasSubstr("is neither all nor host nor cuda:UUID")) << wrong;
  }
  EXPECT_EQ(Refusal({"--device", "host", "--device", "host"}), "--device: 'host' is listed twice");
  EXPECT_EQ(Refusal({"--device", "host", "--device", "all"}), "--device: 'all' must be the only device");
  EXPECT_EQ(Refusal({"--backend", "gpu"}), "--backend: 'gpu' is not one of auto, cuda, host");
}

TEST(ConfigTest, TheOrdinalOfAGpuIsAcceptedOnlyAsAFlag) {
  EXPECT_THAT(Refusal({}, {{"ARRAYBRIDGED_MEMORY__DEVICES", "cuda:0"}}),
              AllOf(HasSubstr("ARRAYBRIDGED_MEMORY__DEVICES: "), HasSubstr("'cuda:0'"), HasSubstr("by its UUID")));
}

TEST(ConfigTest, DevicesAndBackendAgree) {
  EXPECT_EQ(Refusal({"--backend", "host", "--device", kGpuDevice}),
            std::string("--device: device ") + kGpuDevice + " is not served with memory.backend (--backend) host");
  EXPECT_EQ(Refusal({"--backend", "cuda", "--device", "host"}),
            "--device: memory.backend (--backend) cuda needs a GPU, and memory.devices lists none");
  EXPECT_THAT(Good({"--backend", "host", "--device", "host"}).devices, ElementsAre("host"));
}

TEST(ConfigTest, WithoutHostMemoryAPercentageOfItIsRefused) {
  EXPECT_EQ(Good({"--device", "cuda:0", "--host-capacity", "1MiB"}).namespace_quota_bytes, 0u)
      << "the capacity of all devices";
  EXPECT_EQ(Good({"--device", "cuda:0", "--namespace-quota", "1GiB"}).namespace_quota_bytes, uint64_t{1} << 30);
  EXPECT_THAT(Refusal({"--device", "cuda:0", "--namespace-quota", "50%"}),
              HasSubstr("50% is a share of host memory, which is not served"));
}

TEST(ConfigTest, KindsOfGpuMemoryAreInOrder) {
  using enum HandleKind;
  EXPECT_THAT(Good({}).gpus.others.kinds, ElementsAre(kCudaVmm, kCudaIpc));
  EXPECT_EQ(Good({}).gpus.others.capacity_percent, 80u);
  const auto said = [](const char* kinds) { return Variables{{"ARRAYBRIDGED_MEMORY__CUDA__KINDS", kinds}}; };
  EXPECT_THAT(Good({}, said("cuda_ipc, cuda_vmm")).gpus.others.kinds, ElementsAre(kCudaIpc, kCudaVmm));
  EXPECT_THAT(Good({}, said("cuda_ipc")).gpus.others.kinds, ElementsAre(kCudaIpc));
  EXPECT_EQ(Refusal({}, said("cuda_ipc,cuda_ipc")), "ARRAYBRIDGED_MEMORY__CUDA__KINDS: 'cuda_ipc' is listed twice");
  EXPECT_THAT(Refusal({}, said("")), HasSubstr("'' is neither cuda_vmm nor cuda_ipc"));
  EXPECT_THAT(Refusal({}, said("memfd")), HasSubstr("'memfd' is neither cuda_vmm nor cuda_ipc"));
}

TEST(ConfigTest, TheLogsRateLimitIsAtLeastOneLinePerSecond) {
  EXPECT_EQ(Good({}).log_lines_per_second, 100u);
  for (const char* wrong : {"0", "many", "-1"}) {
    EXPECT_THAT(Refusal({}, {{"ARRAYBRIDGED_LOG__RATE_LIMIT_PER_S", wrong}}),
                HasSubstr("is not 1 or more lines per second"));
  }
}

TEST(ConfigTest, LimitsHaveAFlagAndAVariable) {
  const Config config = Good({"--limit", "sessions=3", "--limit", "hello_timeout=20ms"},
                             {{"ARRAYBRIDGED_LIMITS__SESSIONS", "9"}, {"ARRAYBRIDGED_LIMITS__WATCHERS", "8"}});
  EXPECT_EQ(config.limits.sessions, 3u);
  EXPECT_EQ(config.limits.watchers, 8u);
  EXPECT_EQ(config.limits.hello_timeout, milliseconds(20));
}

TEST(ConfigTest, TheGrpcDoorCanBeElsewhereOrOff) {
  EXPECT_EQ(Good({"--listen", "unix:///elsewhere/b.sock"}).grpc_path, "/elsewhere/b.sock");
  EXPECT_EQ(Good({"--listen", "off"}).grpc_path, "");
  EXPECT_THAT(Refusal({"--listen", "tcp://0.0.0.0:1"}), HasSubstr("'tcp://0.0.0.0:1': TCP was removed"));
  EXPECT_EQ(Refusal({"--lifeline", "/a", "--listen", "unix:///a"}),
            "--lifeline: server.lifeline names the same socket '/a' as server.listen (--listen)");
}

TEST(ConfigTest, TheAdministrationsDoorCanBeElsewhereOrOff) {
  EXPECT_EQ(Good({"--directory", "/d"}).admin_path, "/d/admin.sock");
  EXPECT_EQ(Good({"--admin", "unix:///elsewhere/a.sock"}).admin_path, "/elsewhere/a.sock");
  EXPECT_EQ(Good({"--admin", "off"}).admin_path, "");
  EXPECT_EQ(Good({"--embedded"}).admin_path, "");
  EXPECT_EQ(Good({"--admin", "/elsewhere/a.sock"}).admin_path, "/elsewhere/a.sock");
  EXPECT_EQ(Refusal({"--admin", "a"}), "--admin: 'a' is neither an absolute path nor unix:///path nor off");
  EXPECT_EQ(Refusal({"--admin", "unix:///a", "--listen", "unix:///a"}),
            "--admin: server.admin names the same socket '/a' as server.listen (--listen)");
}

TEST(ConfigTest, AdministratorsAreRootTheDaemonsUserAndConfiguredUsers) {
  const AccessList fallback = Good({}).admins;
  EXPECT_EQ(RightOf(fallback, {.uid = 0}), Right::kWrite);
  EXPECT_EQ(RightOf(fallback, {.uid = ::geteuid()}), Right::kWrite);
  EXPECT_EQ(RightOf(fallback, {.uid = 4711, .gid = 4711}), Right::kNone);
  const AccessList named = Good({}, {{"ARRAYBRIDGED_ACCESS__ADMINS", "uid:7, gid:8:ro"}}).admins;
  EXPECT_EQ(RightOf(named, {.uid = 7}), Right::kWrite);
  EXPECT_EQ(RightOf(named, {.uid = 9, .gid = 8}), Right::kRead);
  EXPECT_EQ(RightOf(named, {.uid = 0}), Right::kNone);
  EXPECT_THAT(Refusal({}, {{"ARRAYBRIDGED_ACCESS__ADMINS", "same_uid"}}), HasSubstr("a user or a group"));
}

// The package creates the group; for an embedded broker or in a container it may be missing. A missing group of any
// other name is an error.
TEST(ConfigTest, TheGroupOfAdministratorsNeedNotBeThere) {
  if (::getgrnam("arraybridge-admin") != nullptr) GTEST_SKIP() << "this host has the group";
  const auto said = [](const char* admins) { return Variables{{"ARRAYBRIDGED_ACCESS__ADMINS", admins}}; };
  const AccessList admins = Good({}, said("root, @arraybridge-admin")).admins;
  ASSERT_EQ(admins.size(), 1u);
  EXPECT_EQ(RightOf(admins, {.uid = 0}), Right::kWrite);
  EXPECT_EQ(Good({}, said("@arraybridge-admin:ro,uid:7")).admins.size(), 1u);
  EXPECT_THAT(Refusal({}, said("@arraybridge-admin")), HasSubstr("there is no group 'arraybridge-admin'"))
      << "the list would be empty, and an empty list does not mean the default";
  EXPECT_THAT(Refusal({}, said("root,@arraybridge-admins")), HasSubstr("there is no group 'arraybridge-admins'"));
}

TEST(ConfigTest, TheDriverIsALibrarysPathOrName) {
  for (const char* right : {"auto", "none", "/opt/libcuda.so.1", "libcuda.so.1", "libcuda.so"}) {
    EXPECT_EQ(Good({"--cuda-driver", right}).cuda_driver, right);
  }
  for (const char* wrong : {"", "atuo", "lib/libcuda.so.1", "./libcuda.so", "libcuda.so.1 "}) {
    EXPECT_EQ(Refusal({"--cuda-driver", wrong}), std::string("--cuda-driver: '") + wrong +
                                                     "' is neither auto nor none nor a library's absolute path or "
                                                     "name, such as libcuda.so.1");
  }
}

TEST(ConfigTest, TheDefaultNamespaceIsEveryUsersOwn) {
  const auto said = [](const char* access) { return Variables{{"ARRAYBRIDGED_NAMESPACE__DEFAULT__ACCESS", access}}; };
  EXPECT_TRUE(Good({}, said("same_uid")).namespaces.empty());
  EXPECT_THAT(Refusal({}, said("anyone")),
              AllOf(HasSubstr("ACCESS: 'anyone'"), HasSubstr("same_uid"), HasSubstr("[namespace.NAME]")));
}

// HTTP has no password, so every host that reaches the address can read the metrics.
TEST(ConfigTest, HttpListensOnLoopbackUnlessItIsPublic) {
  for (const char* here : {"127.0.0.1:0", "127.8.9.10:9464", "[::1]:9464", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_EQ(Good({"--http", here}).http_listen, here);
  }
  for (const char* wide : {"0.0.0.0:9464", "[::]:9464", "192.0.2.7:9464", "[::ffff:192.0.2.7]:9464", "128.0.0.1:1"}) {
    EXPECT_EQ(Refusal({"--http", wide}),
              std::string("--http: '") + wide +
                  "' is not a loopback address: every host that reaches it could read metrics and the status "
                  "page; set http.public = true (--http-public) to allow that");
    EXPECT_EQ(Good({"--http", wide, "--http-public"}).http_listen, wide);
  }
  EXPECT_EQ(Good({"--http", "0.0.0.0:1"}, {{"ARRAYBRIDGED_HTTP__PUBLIC", "true"}}).http_listen, "0.0.0.0:1");
  EXPECT_THAT(Refusal({"--http", "0.0.0.0:1"}, {{"ARRAYBRIDGED_HTTP__PUBLIC", "false"}}), HasSubstr("loopback"));
  EXPECT_THAT(Refusal({}, {{"ARRAYBRIDGED_HTTP__LISTEN", "0.0.0.0:1"}}), HasSubstr("ARRAYBRIDGED_HTTP__LISTEN: "));
  EXPECT_EQ(Good({"--http-public"}).http_listen, Good({}).http_listen) << "http.public alone opens no address";
}

TEST(ConfigTest, WithoutAnAddressHttpIsOff) {
  EXPECT_EQ(Good({"--directory", "/run/arraybridge"}).http_listen, "127.0.0.1:9464");
  EXPECT_EQ(Good({"--directory", "/run/arraybridge", "--http", "off"}).http_listen, "");
  EXPECT_EQ(Good({"--directory", "/run/arraybridge", "--http", ""}).http_listen, "");
}

TEST(ConfigTest, ErrorsNameTheFlagAndItsValue) {
  EXPECT_THAT(Refusal({"--cache", "2 MB"}), AllOf(HasSubstr("--cache"), HasSubstr("2 MB"), HasSubstr("MiB")));
  EXPECT_THAT(Refusal({"--cache", "99999999TiB"}), HasSubstr("too large"));
  EXPECT_THAT(Refusal({"--orphan-grace", "30"}), AllOf(HasSubstr("--orphan-grace"), HasSubstr("30")));
  EXPECT_THAT(Refusal({"--orphan-grace", "99999999h"}), HasSubstr("too long"));
  EXPECT_THAT(Refusal({"--host-capacity", "101%"}), HasSubstr("101%"));
  EXPECT_THAT(Refusal({"--host-capacity", "0"}), HasSubstr("--host-capacity"));
  EXPECT_THAT(Refusal({"--namespace-quota", "0%"}), HasSubstr("--namespace-quota"));
  EXPECT_THAT(Refusal({"--ready-fd", "-1"}), HasSubstr("-1"));
  EXPECT_EQ(Refusal({"--directory", "relative"}), "--directory: 'relative' is not an absolute path");
  EXPECT_EQ(Refusal({"--lifeline", "l.sock"}), "--lifeline: 'l.sock' is not an absolute path");
  EXPECT_THAT(Refusal({"--http", "nonsense"}), HasSubstr("--http: 'nonsense' is not HOST:PORT"));
  EXPECT_EQ(Refusal({"--hugepages", "maybe"}), "--hugepages: 'maybe' is neither auto nor never");
  EXPECT_THAT(Refusal({"--no-such-flag"}), HasSubstr("no-such-flag"));
}

TEST(ConfigTest, ErrorsNameTheLimit) {
  EXPECT_THAT(Refusal({"--limit", "sessions"}), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(Refusal({"--limit", "leeses=1"}), HasSubstr("leeses"));
  EXPECT_THAT(Refusal({"--limit", "sessions=many"}), AllOf(HasSubstr("sessions"), HasSubstr("many")));
  EXPECT_THAT(Refusal({"--limit", "sessions=0"}), HasSubstr("sessions"));
  EXPECT_THAT(Refusal({"--limit", "object_bytes_per_uid=0"}), HasSubstr("object_bytes_per_uid"));
}

TEST(ConfigTest, ALimitThatWasRemovedIsToldWhatBoundsItNow) {
  const auto refusal = [](const char* limit) { return Refusal({"--limit", limit}); };
  EXPECT_EQ(refusal("shares_per_uid=1"),
            "--limit shares_per_uid was removed in 0.2.0: set limits.object_bytes_per_uid, which bounds it");
  EXPECT_EQ(refusal("grpc_calls_per_uid=1"),
            "--limit grpc_calls_per_uid was removed in 0.2.0: set limits.requests_per_uid, which bounds it");
  EXPECT_EQ(refusal("connections_per_uid=1"),
            "--limit connections_per_uid was removed in 0.2.0: it is twice limits.sessions_per_uid");
  EXPECT_EQ(refusal("frame_bytes_max=4096"),
            "--limit frame_bytes_max was removed in 0.2.0: its value is fixed; leave it out");
}

TEST(ConfigTest, ErrorsOfPlacesNameTheVariable) {
  const auto refusal = [](const char* name, const char* text) { return Refusal({}, {{name, text}}); };
  EXPECT_EQ(refusal("ARRAYBRIDGED_SERVER__DIRECTORY", "relative"),
            "ARRAYBRIDGED_SERVER__DIRECTORY: 'relative' is not an absolute path");
  EXPECT_EQ(refusal("ARRAYBRIDGED_SERVER__LIFELINE", "l.sock"),
            "ARRAYBRIDGED_SERVER__LIFELINE: 'l.sock' is not an absolute path");
  EXPECT_EQ(refusal("ARRAYBRIDGED_SERVER__ADMIN", "a.sock"),
            "ARRAYBRIDGED_SERVER__ADMIN: 'a.sock' is neither an absolute path nor unix:///path nor off");
  EXPECT_THAT(refusal("ARRAYBRIDGED_HTTP__LISTEN", "nonsense"), HasSubstr("ARRAYBRIDGED_HTTP__LISTEN: 'nonsense'"));
  EXPECT_THAT(refusal("ARRAYBRIDGED_MEMORY__HOST__CAPACITY", "0"),
              HasSubstr("ARRAYBRIDGED_MEMORY__HOST__CAPACITY: the machine has no host memory"));
}

TEST(ConfigTest, UnknownVariablesAreErrorsThatNameThem) {
  EXPECT_THAT(Refusal({}, {{"ARRAYBRIDGED_LIMITS__SESION", "1"}}), HasSubstr("ARRAYBRIDGED_LIMITS__SESION"));
  EXPECT_THAT(Refusal({}, {{"ARRAYBRIDGED_LIMITS__SESSIONS", "x"}}), HasSubstr("ARRAYBRIDGED_LIMITS__SESSIONS"));
}

TEST(ConfigTest, HelpAndVersionNeedNoConfiguration) {
  const Variables broken = {{"ARRAYBRIDGED_NO_SUCH", "1"}};
  const auto help = Load({"--help"}, broken);
  ASSERT_TRUE(help.ok());
  EXPECT_THAT(help->output, AllOf(HasSubstr("--host-capacity"), HasSubstr("--limit")));
  const auto version = Load({"--version"}, broken);
  ASSERT_TRUE(version.ok());
  EXPECT_THAT(version->output, HasSubstr("arraybridged "));
}

}  // namespace
}  // namespace arraybridge::daemon

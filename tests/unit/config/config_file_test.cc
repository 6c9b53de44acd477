// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/config/load.h"
#include "daemon/config/print.h"
#include "daemon/config/removed.h"
#include "daemon/config/settings.h"
#include "daemon/config/sources.h"

namespace arraybridge::daemon {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ConfigFileTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::string name = testing::TempDir() + "/config-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    std::filesystem::create_directory(directory_ + "/conf.d");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/arraybridged.toml"; }
  void Write(const std::string& text, const std::string& name = "arraybridged.toml") const {
    std::ofstream(directory_ + "/" + name) << text;
  }
  static Result<ConfigRequest> Load(std::vector<std::string> flags) {
    std::vector<const char*> words{"arraybridged"};
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    return LoadConfig(static_cast<int>(words.size()), words.data());
  }
  Config Good(std::vector<std::string> flags = {}) const {
    flags.insert(flags.begin(), {"--config", path()});
    const auto request = Load(std::move(flags));
    EXPECT_TRUE(request.ok()) << request.status().ToString();
    return request.ok() ? request->config : Config{};
  }
  std::string Refusal(std::vector<std::string> flags = {}) const {
    flags.insert(flags.begin(), {"--config", path()});
    const auto request = Load(std::move(flags));
    EXPECT_EQ(request.status().code(), Code::kInvalidArgument);
    return request.status().message();
  }

  std::string directory_;
};

TEST_F(ConfigFileTest, EachSourceBeatsTheOneBelow) {
  Write("[memory.host]\ncache = '1MiB'\nown_arena = '1MiB'\narena_idle = '1s'\n[limits]\nsessions = 7\nwatchers = 7\n");
  Write("memory.host.cache = '2MiB'\nlimits.sessions = 8\nlog.level = 'warn'", "conf.d/20-b.toml");
  Write("log.level = 'error'\nlimits.watchers = 9", "conf.d/10-a.toml");
  Write("this is no TOML", "conf.d/README");
  ::setenv("ARRAYBRIDGED_MEMORY__HOST__OWN_ARENA", "3MiB", 1);
  ::setenv("ARRAYBRIDGED_MEMORY__HOST__ARENA_IDLE", "3s", 1);
  const Config config = Good({"--arena-idle", "4s"});
  ::unsetenv("ARRAYBRIDGED_MEMORY__HOST__OWN_ARENA");
  ::unsetenv("ARRAYBRIDGED_MEMORY__HOST__ARENA_IDLE");
  EXPECT_EQ(config.host_cache_bytes, 2u << 20);
  EXPECT_EQ(config.own_arena_bytes_min, 3u << 20);
  EXPECT_EQ(config.arena_idle.count(), 4000);
  EXPECT_EQ(config.limits.sessions, 8u);
  EXPECT_EQ(config.limits.watchers, 9u);
  EXPECT_EQ(config.log_level, "warn");
}

TEST_F(ConfigFileTest, ErrorsNameFileLineAndColumn) {
  Write("version = 1\n[memory.host]\n  cahce = '1MiB'\n");
  EXPECT_EQ(Refusal(), path() + ":3:3: memory.host.cahce is unknown: did you mean memory.host.cache?");
  Write("[limits]\nsessions = 'many'\n");
  EXPECT_THAT(Refusal(), AllOf(StartsWith(path() + ":2:1: "), HasSubstr("many")));
  Write("[limits\nsessions = 1\n");
  EXPECT_THAT(Refusal(), StartsWith(path() + ":1:"));
  Write("[limits]\nsessions = 1\nsessions = 2\n");
  EXPECT_THAT(Refusal(), StartsWith(path() + ":3:"));
  Write("[limits]\nsessions = 1.5\n");
  EXPECT_THAT(Refusal(), AllOf(StartsWith(path() + ":2:"), HasSubstr("limits.sessions")));
  Write("version = 2\n");
  EXPECT_THAT(Refusal(), AllOf(StartsWith(path() + ":1:1: "), HasSubstr("'2'")));
  Write("[server]\nready_fd = 3\n");
  EXPECT_THAT(Refusal(), HasSubstr("--ready-fd"));
  Write("");
  Write("[server]\nlisten = ['unix:///a', 'unix:///b']\n", "conf.d/x.toml");
  EXPECT_THAT(Refusal(), StartsWith(directory_ + "/conf.d/x.toml:2:"));
}

// Errors that are found only after all sources are read must name their source too, so that an operator does not look
// for a flag that was never given.
TEST_F(ConfigFileTest, ErrorsOfPlacesNameFileLineAndColumn) {
  const auto refusal = [this](const std::string& text) {
    Write(text);
    return Refusal();
  };
  EXPECT_EQ(refusal("[server]\ndirectory = 'relative'\n"), path() + ":2:1: 'relative' is not an absolute path");
  EXPECT_EQ(refusal("[server]\n lifeline = 'relative.sock'\n"),
            path() + ":2:2: 'relative.sock' is not an absolute path");
  EXPECT_EQ(refusal("[server]\nlisten = 'b.sock'\n"),
            path() + ":2:1: 'b.sock' is neither an absolute path nor unix:///path nor off");
  EXPECT_EQ(refusal("[server]\nlisten = 'unix:///run/x'\nlifeline = '/run/x'\n"),
            path() + ":3:1: server.lifeline names the same socket '/run/x' as server.listen (" + path() + ":2:1)");
  EXPECT_EQ(refusal("[server]\ndirectory = '/run/x'\nlifeline = '/run/x/admin.sock'\n"),
            path() + ":3:1: server.lifeline names the same socket '/run/x/admin.sock' as server.admin (default)");
  EXPECT_THAT(refusal("[http]\nlisten = 'nonsense'\n"), StartsWith(path() + ":2:1: 'nonsense' is not HOST:PORT"));
  EXPECT_THAT(refusal("[http]\nlisten = 'localhost:9464'\n"),
              StartsWith(path() + ":2:1: 'localhost' is not a numeric address"));
  EXPECT_THAT(refusal("[http]\nlisten = '127.0.0.1:70000'\n"), StartsWith(path() + ":2:1: "));
  EXPECT_EQ(refusal("[memory.host]\nhugepages = 'always'\n"), path() + ":2:1: 'always' is neither auto nor never");
  EXPECT_EQ(refusal("[memory.cuda]\nevents = 'always'\n"), path() + ":2:1: 'always' is neither auto nor never");
  EXPECT_EQ(refusal("[http]\nnamespaces = 'auto'\n"), path() + ":2:1: 'auto' is neither true nor false");
}

TEST_F(ConfigFileTest, ARefusalOfAPublicAddressNamesItsOrigin) {
  Write("[http]\nlisten = '0.0.0.0:9464'\n");
  EXPECT_THAT(Refusal(), AllOf(StartsWith(path() + ":2:1: '0.0.0.0:9464'"), HasSubstr("http.public = true")));
  Write("[http]\nlisten = '0.0.0.0:9464'\npublic = true\n");
  EXPECT_EQ(Good().http_listen, "0.0.0.0:9464");
  EXPECT_THAT(Refusal({"--http-public=false"}), StartsWith(path() + ":2:1: '0.0.0.0:9464'"));
  Write("[http]\nlisten = '0.0.0.0:9464'\npublic = false\n");
  EXPECT_EQ(Good({"--http-public"}).http_listen, "0.0.0.0:9464");
}

TEST_F(ConfigFileTest, ErrorsOfDependentValuesNameFileLineAndColumn) {
  const auto refusal = [this](const std::string& text) {
    Write(text);
    return Refusal();
  };
  EXPECT_THAT(refusal("[memory.host]\ncapacity = 0\n"), StartsWith(path() + ":2:1: the machine has no host memory"));
  EXPECT_EQ(refusal("[namespace.default]\nquota = '0%'\n"), path() + ":2:1: 0% would refuse everything");
  EXPECT_THAT(refusal("[namespace.a]\nquota = 1\n[namespace." + std::string(256, 'n') + "]\nquota = 1\n"),
              AllOf(StartsWith(path() + ":4:1: "), HasSubstr("maximum 255")));
  EXPECT_EQ(refusal("[limits]\nnamespaces = 1\n[namespace.a]\nquota = 1\n[namespace.b]\nquota = 1\n"),
            path() + ":2:1: 2 namespaces have tables (limits.namespaces 1)");
  EXPECT_EQ(refusal("[memory]\nbackend = 'host'\ndevices = '" + std::string("cuda:") +
                    "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00'\n"),
            path() +
                ":3:1: device cuda:GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00 is not served with memory.backend "
                "(--backend) host");
}

TEST_F(ConfigFileTest, EveryErrorIsReportedInTheOrderOfTheLines) {
  Write(
      "[memory.host]\ncahce = '1MiB'\ncapacity = [1.5]\n[limits]\nsessions = 'many'\n[namespace.b]\nquota = '0%'\n"
      "[namespace.a]\nqouta = 1\n[http]\nlisten = '0.0.0.0:9464'\npublic = 'ture'\n");
  Write("[limits\n", "conf.d/10.toml");
  Write("[log]\nlevel = 'loud'\n", "conf.d/20.toml");
  ::setenv("ARRAYBRIDGED_LOG__LEVLE", "warn", 1);
  const auto loaded = Load({"--config", path(), "--limit", "sesions=3", "--limit", "sessions=0"});
  ::unsetenv("ARRAYBRIDGED_LOG__LEVLE");
  EXPECT_EQ(loaded.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(AllErrors(loaded.status()),
              ::testing::ElementsAre(
                  path() + ":2:1: memory.host.cahce is unknown: did you mean memory.host.cache?",
                  path() + ":3:1: memory.host.capacity is neither a text nor a number nor a boolean",
                  HasSubstr(":5:1: 'many' is not a whole number"),
                  path() + ":9:1: namespace.a.qouta is unknown: did you mean namespace.a.quota?",
                  HasSubstr(":12:1: 'ture' is neither true nor false"), HasSubstr("conf.d/10.toml:1:"),
                  HasSubstr("conf.d/20.toml:2:1: 'loud' is not one of "),
                  "the environment variable ARRAYBRIDGED_LOG__LEVLE is unknown: did you mean ARRAYBRIDGED_LOG__LEVEL?",
                  "--limit: 'sesions' is not a limit: did you mean sessions?",
                  "--limit sessions: limit sessions: must be more than 0"));
}

// Errors of values that depend on others stand beside the errors of texts, unless they only follow from one of those.
TEST_F(ConfigFileTest, AnErrorThatFollowsFromAnotherIsNotReported) {
  const auto errors = [this](const std::string& text) {
    Write(text);
    return AllErrors(Load({"--config", path()}).status());
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(errors("[log]\nlevel = 'loud'\n[namespace.a]\nquota = '0%'\n[namespace.b]\nquota = '0%'\n"),
              ElementsAre(HasSubstr(":2:1: "), HasSubstr(":4:1: 0% would"), HasSubstr(":6:1: 0% would")));
  EXPECT_THAT(errors("[http]\nlisten = '0.0.0.0:9464'\npublic = 'ture'\n"), ElementsAre(HasSubstr(":3:1: ")));
  EXPECT_THAT(errors("[http]\nlisten = '0.0.0.0:9464'\n[server]\nlifeline = '/run/x'\nlisten = 'unix:///run/x'\n"),
              ElementsAre(HasSubstr(":5:1: server.listen names the same socket"), HasSubstr(":2:1: '0.0.0.0:9464'")));
}

TEST_F(ConfigFileTest, AnUnknownKeyIsAnsweredWithTheNearest) {
  const auto refusal = [this](const std::string& text) {
    Write(text);
    return Refusal();
  };
  EXPECT_EQ(refusal("[memory]\ncache = 1\n"), path() + ":2:1: memory.cache is unknown: did you mean memory.host.cache?")
      << "the only key of this name";
  EXPECT_EQ(refusal("[limits]\nblue = 1\n"), path() + ":2:1: limits.blue is unknown");
  EXPECT_EQ(refusal("colour = 1\n"), path() + ":1:1: colour is unknown");
  EXPECT_THAT(Load({"--cahce", "1MiB"}).status().message(), HasSubstr("--cahce: did you mean --cache?"));
}

// If two settings contradict each other, the message first names the one from the stronger source.
TEST_F(ConfigFileTest, AnErrorAboutOneSocketInTwoSettingsNamesBoth) {
  Write("[server]\nlifeline = '/run/x'\n");
  const auto by_flag = Load({"--config", path(), "--admin", "unix:///run/x"});
  EXPECT_EQ(by_flag.status().message(),
            "--admin: server.admin names the same socket '/run/x' as server.lifeline (" + path() + ":2:1)");
  ::setenv("ARRAYBRIDGED_SERVER__LISTEN", "unix:///run/x", 1);
  const auto by_variable = Load({"--config", path()});
  ::unsetenv("ARRAYBRIDGED_SERVER__LISTEN");
  EXPECT_EQ(by_variable.status().message(),
            "ARRAYBRIDGED_SERVER__LISTEN: server.listen names the same socket '/run/x' as server.lifeline (" + path() +
                ":2:1)");
}

TEST_F(ConfigFileTest, AFileThatOtherUsersMayWriteIsRefused) {
  EXPECT_EQ(Load({"--config", path()}).status().code(), Code::kNotFound);
  Write("version = 1");
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  EXPECT_THAT(Refusal(), HasSubstr("other users may write it"));
  EXPECT_EQ(Load({"--config", directory_}).status().code(), Code::kInvalidArgument);
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Load({"--config", pipe}).status().code(), Code::kInvalidArgument) << "the daemon does not wait for a pipe";
}

// An operator who comes from 0.1 learns what replaces a setting, wherever it stands.
TEST_F(ConfigFileTest, ARemovedSettingNamesWhatReplacesIt) {
  const auto refusal = [this](const std::string& text, std::vector<std::string> flags = {}) {
    Write(text);
    return Refusal(std::move(flags));
  };
  const std::string removed = std::string(" ") + kRemovedWithTcp;
  EXPECT_EQ(refusal("[server.tls]\ncert = '/c.pem'\n"), path() + ":2:1: server.tls.cert" + removed);
  EXPECT_EQ(refusal("[limits]\ntcp_keepalive = '1s'\n"), path() + ":2:1: limits.tcp_keepalive" + removed);
  EXPECT_EQ(refusal("[limits]\nsubjects = 1\n"), path() + ":2:1: limits.subjects" + removed);
  EXPECT_EQ(refusal("[server]\nlisten = 'tcp://[::1]:1'\n"), path() + ":2:1: 'tcp://[::1]:1': TCP" + removed);
  EXPECT_THAT(refusal("[server]\nlisten = ['unix:///a', 'tcp://[::1]:1']\n"), HasSubstr("not a list: TCP" + removed));
  EXPECT_THAT(refusal("[server]\nlisten = 'unix:///a,tcp://[::1]:1'\n"), HasSubstr("TCP" + removed));
  EXPECT_THAT(refusal("[server]\nlisten = 'unix:///a,unix:///b'\n"), HasSubstr("are several addresses"));
  EXPECT_EQ(refusal("[server]\nadmin = '127.0.0.1:1'\n"), path() + ":2:1: '127.0.0.1:1': TCP" + removed);
  EXPECT_EQ(refusal("[namespace.a]\naccess = 'subject:b:ro'\n"), path() + ":2:1: 'subject:b': subject:NAME" + removed);
  EXPECT_EQ(refusal("", {"--limit", "tcp_connections=1"}), "--limit tcp_connections" + removed);
  EXPECT_THAT(refusal("", {"--tls-client-ca", "/ca.pem"}), EndsWith("--tls-client-ca: it" + removed));
  ::setenv("ARRAYBRIDGED_SERVER__TLS__CLIENT_CA", "/ca.pem", 1);
  const std::string of_variable = Refusal();
  ::unsetenv("ARRAYBRIDGED_SERVER__TLS__CLIENT_CA");
  EXPECT_EQ(of_variable, "ARRAYBRIDGED_SERVER__TLS__CLIENT_CA" + removed);
}

TEST_F(ConfigFileTest, ThePrintedConfigurationIsAFileWithTheSameValues) {
  Write(
      "[memory.host]\ncache = '1MiB'\n[server]\ndirectory = '/run/with \"quotes\"'\nlisten = ['unix:///else.sock']\n");
  const auto printed = Load({"--config", path(), "--print-config", "--limit", "sessions=3"});
  ASSERT_TRUE(printed.ok()) << printed.status().ToString();
  EXPECT_THAT(printed->output, HasSubstr("# " + path() + ":2:1\n"));
  EXPECT_THAT(printed->output, HasSubstr("# --limit sessions\n"));
  EXPECT_THAT(printed->output, HasSubstr("# default\n"));
  Write(printed->output);
  const auto again = Load({"--config", path(), "--print-config"});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->config.limits.sessions, 3u);
  EXPECT_EQ(again->config.grpc_path, "/else.sock");
  EXPECT_EQ(again->config.directory, "/run/with \"quotes\"");
}

// A default exists twice: as the value of a field, and as the text for operators.
TEST_F(ConfigFileTest, TheTableHasTheDefaultsOfConfig) {
  Draft read;
  for (const Setting& setting : Settings()) {
    if (setting.value.fallback.empty()) continue;
    const Status status = setting.value.read(setting.value.fallback, "", read);
    EXPECT_TRUE(status.ok()) << setting.key << ": " << status.ToString();
  }
  const Config plain;
  EXPECT_EQ(read.config.drain_timeout, plain.drain_timeout);
  EXPECT_EQ(read.config.spin, plain.spin);
  EXPECT_EQ(read.config.host_cache_bytes, plain.host_cache_bytes);
  EXPECT_EQ(read.config.huge_pages, plain.huge_pages);
  EXPECT_EQ(read.config.own_arena_bytes_min, plain.own_arena_bytes_min);
  EXPECT_EQ(read.config.arena_idle, plain.arena_idle);
  EXPECT_EQ(read.config.orphan_grace, plain.orphan_grace.get());
  EXPECT_EQ(read.config.share_lifetime, plain.share_lifetime.get());
  EXPECT_EQ(read.config.withdraw_on_exit, plain.withdraw_on_exit.get());
  EXPECT_EQ(read.config.unlisted_namespaces, plain.unlisted_namespaces.get());
  EXPECT_EQ(read.config.memory_backend, plain.memory_backend);
  EXPECT_EQ(read.config.devices, plain.devices);
  EXPECT_EQ(read.config.cuda_driver, plain.cuda_driver);
  EXPECT_EQ(read.config.gpus.others, plain.gpus.others);
  EXPECT_EQ(read.config.cuda_events, plain.cuda_events);
  EXPECT_EQ(read.config.log_level, plain.log_level);
  EXPECT_EQ(read.config.log_format, plain.log_format);
  EXPECT_EQ(read.config.log_lines_per_second, plain.log_lines_per_second);
  EXPECT_EQ(read.host_capacity, Draft{}.host_capacity);
  EXPECT_EQ(read.namespace_quota, Draft{}.namespace_quota);
}

TEST_F(ConfigFileTest, TheExampleFileHasTheDefaults) {
  Write(ExampleFile());
  const auto ours = Load({"--config", path(), "--print-config"});
  Write("");
  const auto defaults = Load({"--config", path(), "--print-config"});
  ASSERT_TRUE(ours.ok()) << ours.status().ToString();
  ASSERT_TRUE(defaults.ok());
  const auto values = [](const std::string& printed) {
    std::string out;
    std::istringstream lines(printed);
    for (std::string line; std::getline(lines, line);) out += line.substr(0, line.find('#')) + "\n";
    return out;
  };
  EXPECT_EQ(values(ours->output), values(defaults->output));
  for (const Setting& setting : Settings()) {
    if (setting.sources == Setting::Sources::kFlagOnly) continue;
    const std::string name = setting.key.substr(setting.key.rfind('.') + 1);
    EXPECT_THAT(ExampleFile(), HasSubstr("\n" + std::string(setting.value.show ? "# " : "") + name + " = "))
        << setting.key;
    EXPECT_TRUE(setting.value.show == nullptr || !setting.value.example.empty()) << setting.key;
  }
}

// A setting whose default depends on other settings is commented out in the example file; the line must be valid if an
// operator removes the comment sign.
TEST_F(ConfigFileTest, ExamplesOfSettingsAreValid) {
  size_t examples = 0;
  for (const Setting& setting : Settings()) {
    if (setting.value.example.empty()) continue;
    Draft read;
    const Status status = setting.value.read(setting.value.example, "", read);
    EXPECT_TRUE(status.ok()) << setting.key << ": " << status.ToString();
    ++examples;
  }
  EXPECT_GE(examples, 8u);
}

// A value is refused even if a stronger source replaces it.
TEST_F(ConfigFileTest, ARefusalOfALimitOutOfItsRangeNamesItsOrigin) {
  Write("[limits]\nsessions = 0\n");
  EXPECT_EQ(Refusal({"--limit", "sessions=3"}), path() + ":2:1: limit sessions: must be more than 0");
  Write("[limits]\nframe_bytes_max = 4096\n");
  EXPECT_EQ(Refusal(), path() + ":2:1: limits.frame_bytes_max was removed in 0.2.0: its value is fixed; leave it out");
  Write("[limits]\nticket_lifetime = '0s'\n");
  EXPECT_EQ(Refusal(), path() + ":2:1: limit ticket_lifetime: must be more than 0");
  Write("[limits]\nwatchers = 0\nrequest_timeout_max = 0\n");
  EXPECT_EQ(Good().limits.watchers, 0u);
}

// Spellings of defaults that the table does not print.
TEST_F(ConfigFileTest, OtherSpellingsOfTheDefaultsAreAccepted) {
  Write(
      "[server]\nadmin = '/run/arraybridge/admin.sock'\n"
      "[memory.cuda]\ndriver = 'libcuda.so.1'\n[namespace.default]\naccess = ['same_uid']\n"
      "[access]\nadmins = ['root', '@arraybridge-admin']\n[http]\nlisten = ''\n");
  const Config config = Good();
  EXPECT_EQ(config.admin_path, "/run/arraybridge/admin.sock");
  EXPECT_EQ(config.cuda_driver, "libcuda.so.1");
  EXPECT_EQ(config.http_listen, "");
}

constexpr char kGpu[] = "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00";

TEST_F(ConfigFileTest, AGpuHasATableOfItsOwn) {
  const std::string other = "MIG-00112233-4455-6677-8899-aabbccddeeff";
  Write(std::string("[memory.cuda]\ncapacity = '70%'\nkinds = ['cuda_ipc', 'cuda_vmm']\n[memory.\"") + kGpu +
        "\"]\ncapacity = '30%'\n[memory." + other + "]\nkinds = ['cuda_vmm']\n");
  const auto loaded = Load({"--config", path(), "--print-config"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  using enum HandleKind;
  const auto expect = [&other](const GpuTable& gpus) {
    EXPECT_EQ(gpus.Of(kGpu), (GpuTerms{30, {kCudaIpc, kCudaVmm}}));
    EXPECT_EQ(gpus.Of(other), (GpuTerms{70, {kCudaVmm}}));
    EXPECT_EQ(gpus.Of("GPU-of nobody"), (GpuTerms{70, {kCudaIpc, kCudaVmm}}));
  };
  expect(loaded->config.gpus);
  EXPECT_THAT(loaded->output, HasSubstr(std::string("[memory.\"") + kGpu + "\"]\ncapacity = \"30%\""));
  EXPECT_THAT(loaded->output, HasSubstr("# " + path() + ":5:1\n"));
  Write(loaded->output);
  expect(Good().gpus);
}

TEST_F(ConfigFileTest, AnErrorInAGpusTableIsNamed) {
  const auto refusal = [this](const std::string& text) {
    Write("[memory.\"" + text);
    return Refusal();
  };
  EXPECT_EQ(refusal(std::string(kGpu) + "\"]\ncache = '1GiB'"), path() + ":2:1: memory." + kGpu + ".cache is unknown");
  EXPECT_EQ(refusal(std::string(kGpu) + "\"]\ncapacity = '1GiB'"),
            path() + ":2:1: '1GiB' is not a percentage from 1% to 100%");
  EXPECT_EQ(refusal(std::string(kGpu) + "\"]\nkinds = ['cuda_vmm', 'memfd']"),
            path() + ":2:1: 'memfd' is neither cuda_vmm nor cuda_ipc");
  EXPECT_THAT(refusal("GPU-5A5A5A5A-5a5a-5a5a-5a5a-5a5a5a5a5a00\"]\ncapacity = '1%'"),
              AllOf(StartsWith(path() + ":2:1: 'GPU-5A5A5A5A"), HasSubstr("is not the UUID of a GPU")));
  EXPECT_THAT(refusal("gpu-5\"]\ncapacity = '1%'"), HasSubstr("memory.gpu-5.capacity is unknown"));
}

TEST_F(ConfigFileTest, AReloadKeepsTheValuesOfAGpusTable) {
  const std::string table = std::string("[memory.\"") + kGpu + "\"]\n";
  Write(table + "capacity = '30%'\n");
  const std::string file = path();
  const char* const arguments[] = {"arraybridged", "--config", file.c_str()};
  auto running = LoadConfig(3, arguments);
  ASSERT_TRUE(running.ok()) << running.status().ToString();
  const auto kept = [&] {
    const auto reloaded = ReloadConfig(3, arguments, &*running);
    EXPECT_TRUE(reloaded.ok()) << reloaded.status().ToString();
    return reloaded.ok() ? reloaded->kept : std::vector<std::string>{};
  };
  EXPECT_THAT(kept(), ::testing::IsEmpty());
  const std::string key = std::string("memory.") + kGpu;
  Write(table + "capacity = '40%'\nkinds = ['cuda_ipc']\n");
  EXPECT_THAT(kept(), ::testing::ElementsAre(key + ".capacity", key + ".kinds"));
  Write("");
  EXPECT_THAT(kept(), ::testing::ElementsAre(key + ".capacity"));
  EXPECT_EQ(running->config.gpus.Of(kGpu).capacity_percent, 30u);
}

std::string NameOfGroup(gid_t id) {
  const group* const found = ::getgrgid(id);
  return found == nullptr ? std::string() : found->gr_name;
}

TEST_F(ConfigFileTest, NamespacesHaveTables) {
  const std::string token = path() + ".token";
  std::ofstream(token) << "0123456789abcdef\n";
  ASSERT_EQ(::chmod(token.c_str(), 0640), 0);
  Write(
      "[memory.host]\ncapacity = \"1GiB\"\n"
      "[namespace.default]\nquota = \"50%\"\norphan_grace = \"7s\"\n"
      "[namespace.scratch]\nquota = \"25%\"\nshare_lifetime = \"3s\"\non_publisher_exit = \"withdraw\"\n"
      "access = [\"same_uid\"]\n"
      "[namespace.\"a.b\"]\naccess = [\"uid:7\", \"gid:8:ro\", \"@" +
      NameOfGroup(0) + "\", \"root:ro\", \"anyone:ro\", \"token:" + token + ":ro\"]\n");
  const auto loaded = Load({"--config", path(), "--print-config"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const NamespacePolicies& all = loaded->config.namespaces;
  ASSERT_EQ(all.size(), 2u);
  using Who = AccessEntry::Who;
  const NamespacePolicy scratch{256u << 20, std::chrono::seconds(3), std::chrono::seconds(7), true, {}};
  EXPECT_EQ(all.at("scratch"), scratch);
  const NamespacePolicy shared{512u << 20,
                               std::chrono::seconds(0),
                               std::chrono::seconds(7),
                               false,
                               {{Who::kUser, 7, {}, Right::kWrite},
                                {Who::kGroup, 8, {}, Right::kRead},
                                {Who::kGroup, 0, {}, Right::kWrite},
                                {Who::kUser, 0, {}, Right::kRead},
                                {Who::kAnyone, 0, {}, Right::kRead},
                                {Who::kToken, 0, "0123456789abcdef", Right::kRead}}};
  EXPECT_EQ(all.at("a.b"), shared);
  EXPECT_THAT(loaded->output, HasSubstr("\n[namespace.\"a.b\"]\naccess = \"uid:7,gid:8:ro,"));
  EXPECT_THAT(loaded->output, ::testing::Not(HasSubstr("0123456789abcdef")));
}

TEST_F(ConfigFileTest, AnErrorInANamespacesTableIsNamed) {
  const std::string token = path() + ".token";
  std::ofstream(token) << "short\n";
  ASSERT_EQ(::chmod(token.c_str(), 0600), 0);
  const auto refusal = [&](const std::string& text) {
    Write(text);
    const auto loaded = Load({"--config", path()});
    EXPECT_EQ(loaded.status().code(), Code::kInvalidArgument) << text;
    return loaded.status().message();
  };
  const auto of_access = [&](const std::string& entry) {
    return refusal("[namespace.x]\naccess = [\"" + entry + "\"]\n");
  };
  EXPECT_THAT(refusal("[namespace.x]\nqouta = 1\n"), HasSubstr(":2:1: namespace.x.qouta is unknown"));
  EXPECT_THAT(refusal("[namespace.default]\naccess = [\"anyone\"]\n"), HasSubstr(":2:1: 'anyone' is not same_uid"));
  EXPECT_THAT(refusal("[namespace.x]\nquota = \"0%\"\n"), HasSubstr(":2:1: 0% would refuse everything"));
  EXPECT_THAT(refusal("[namespace.x]\nquota = [1, 2]\n"), HasSubstr("namespace.x.quota takes one value, not a list"));
  EXPECT_THAT(refusal("[server]\nadmin = [\"off\", \"off\"]\n"), HasSubstr("server.admin takes one value, not a list"));
  EXPECT_THAT(refusal("[namespace.x]\non_publisher_exit = \"stay\"\n"),
              HasSubstr("'stay' is neither keep nor withdraw"));
  EXPECT_THAT(refusal("[namespace.x]\naccess = []\n"), HasSubstr("at least one entry"));
  EXPECT_THAT(refusal("[namespace.x]\naccess = [\"uid:1,uid:2\", \"uid:3\"]\n"), HasSubstr("neither a text"));
  EXPECT_THAT(refusal("[namespace.x]\naccess = [\"same_uid\", \"uid:1\"]\n"),
              HasSubstr("same_uid must be the only entry"));
  EXPECT_THAT(refusal("[namespace.\"\"]\nquota = 1\n"), HasSubstr("a namespace cannot have this name"));
  EXPECT_THAT(refusal("[namespace.\"a\\n\"]\nquota = 1\n"), HasSubstr("a namespace cannot have this name"));
  EXPECT_THAT(refusal("[namespace." + std::string(256, 'n') + "]\nquota = 1\n"), HasSubstr("maximum 255"));
  EXPECT_THAT(refusal("[limits]\nnamespaces = 1\n[namespace.a]\nquota = 1\n[namespace.b]\nquota = 1\n"),
              HasSubstr("2 namespaces have tables (limits.namespaces 1)"));
  EXPECT_THAT(refusal("[access]\nunlisted = \"maybe\"\n"), HasSubstr("'maybe' is neither own nor refused"));
  EXPECT_THAT(of_access("same-uid"), HasSubstr("'same-uid' is neither same_uid"));
  EXPECT_THAT(of_access("uid:me"), HasSubstr("'me' is not the number"));
  EXPECT_THAT(of_access("uid:4294967295"), HasSubstr("is not the number of a user"));
  EXPECT_THAT(of_access("@nobody-has-this-group"), HasSubstr("there is no group 'nobody-has-this-group'"));
  EXPECT_THAT(of_access("token:relative"), HasSubstr("not an absolute path"));
  EXPECT_THAT(of_access("token:" + token + ".not"), HasSubstr("No such file"));
  EXPECT_THAT(of_access("token:/tmp"), HasSubstr("is not a file"));
  EXPECT_THAT(of_access("token:" + token), HasSubstr("16 to 256 bytes"));
  std::ofstream(token) << "0123456789abcdef\n";
  ASSERT_EQ(::chmod(token.c_str(), 0644), 0);
  EXPECT_THAT(of_access("token:" + token), HasSubstr("other users may read or write it (chmod o-rw)"));
}

TEST_F(ConfigFileTest, AReloadAdoptsNamespaces) {
  const std::string token = path() + ".token";
  std::ofstream(token) << "0123456789abcdef";
  ASSERT_EQ(::chmod(token.c_str(), 0600), 0);
  const std::string with_token = "[namespace.a]\naccess = [\"token:" + token + "\"]\n";
  Write(with_token + "[namespace.b]\nquota = 4096\n");
  const std::string file = path();
  const char* const arguments[] = {"arraybridged", "--config", file.c_str()};
  auto running = LoadConfig(3, arguments);
  ASSERT_TRUE(running.ok()) << running.status().ToString();
  const auto changed = [&] {
    const auto reloaded = ReloadConfig(3, arguments, &*running);
    EXPECT_TRUE(reloaded.ok()) << reloaded.status().ToString();
    return reloaded.ok() ? reloaded->changed : std::vector<std::string>();
  };
  EXPECT_THAT(changed(), ::testing::IsEmpty());
  std::ofstream(token) << "another0another0";  // the text of the configuration stays the same, but its meaning changes
  EXPECT_THAT(changed(), ::testing::ElementsAre("namespace.a"));
  EXPECT_EQ(running->config.namespaces.at("a").access.at(0).secret, "another0another0");
  Write(with_token + "[namespace.default]\norphan_grace = \"1s\"\n[namespace.c]\nquota = 1\n");
  EXPECT_THAT(changed(),
              ::testing::ElementsAre("namespace.default.orphan_grace", "namespace.a", "namespace.b", "namespace.c"));
  EXPECT_FALSE(running->config.namespaces.contains("b"));
  EXPECT_EQ(running->config.namespaces.at("c").orphan_grace, std::chrono::seconds(1));
}

}  // namespace
}  // namespace arraybridge::daemon

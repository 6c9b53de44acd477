#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/config_table.h"

namespace arraybridge {
namespace {

using ::testing::AllOf;
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
  std::string Refusal() const {
    const auto request = Load({"--config", path()});
    EXPECT_EQ(request.status().code(), Code::kInvalidArgument);
    return request.status().message();
  }

  std::string directory_;
};

TEST_F(ConfigFileTest, EachSourceBeatsTheOneBelow) {
  Write("[memory.host]\ncache = '1MiB'\nown_arena = '1MiB'\narena_idle = '1s'\n[limits]\nsessions = 7\nrank_max = 7\n");
  Write("memory.host.cache = '2MiB'\nlimits.sessions = 8\nlog.level = 'warn'", "conf.d/20-b.toml");
  Write("log.level = 'error'\nlimits.rank_max = 9", "conf.d/10-a.toml");
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
  EXPECT_EQ(config.limits.rank_max, 9u);
  EXPECT_EQ(config.log_level, "warn");
}

TEST_F(ConfigFileTest, ErrorsNameFileLineAndColumn) {
  Write("version = 1\n[memory.host]\n  cahce = '1MiB'\n");
  EXPECT_EQ(Refusal(), path() + ":3:3: memory.host.cahce is unknown");
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

TEST_F(ConfigFileTest, WhatIsNoFileOfItsOwnersIsRefused) {
  EXPECT_EQ(Load({"--config", path()}).status().code(), Code::kNotFound);
  Write("version = 1");
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  EXPECT_THAT(Refusal(), HasSubstr("everybody may write it"));
  EXPECT_EQ(Load({"--config", directory_}).status().code(), Code::kInvalidArgument);
}

TEST_F(ConfigFileTest, PrintedConfigurationIsAFileThatSaysTheSame) {
  Write(
      "[memory.host]\ncache = '1MiB'\n[server]\ndirectory = '/run/with \"quotes\"'\nlisten = ['unix:///else.sock']\n");
  const auto printed = Load({"--config", path(), "--print-config", "--limit", "sessions=3"});
  ASSERT_TRUE(printed.ok()) << printed.status().ToString();
  EXPECT_THAT(printed->help, HasSubstr("# " + path() + ":2:1\n"));
  EXPECT_THAT(printed->help, HasSubstr("# --limit sessions\n"));
  EXPECT_THAT(printed->help, HasSubstr("# default\n"));
  Write(printed->help);
  const auto again = Load({"--config", path(), "--print-config"});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->config.limits.sessions, 3u);
  EXPECT_EQ(again->config.grpc_path, "/else.sock");
  EXPECT_EQ(again->config.directory, "/run/with \"quotes\"");
}

// A default is written twice: as the value of a field, and as the text that operators read.
TEST_F(ConfigFileTest, TheTableSaysTheDefaultsThatHold) {
  Draft read;
  for (const Setting& setting : Settings()) {
    if (setting.fallback.empty()) continue;
    const Status status = setting.read(setting.fallback, read);
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
  EXPECT_EQ(read.config.cuda_driver, plain.cuda_driver);
  EXPECT_EQ(read.config.cuda_capacity_percent, plain.cuda_capacity_percent);
  EXPECT_EQ(read.config.cuda_events, plain.cuda_events);
  EXPECT_EQ(read.config.log_level, plain.log_level);
  EXPECT_EQ(read.config.log_format, plain.log_format);
  EXPECT_EQ(read.host_capacity, Draft{}.host_capacity);
  EXPECT_EQ(read.namespace_quota, Draft{}.namespace_quota);
}

TEST_F(ConfigFileTest, TheFileThatWeShipSaysTheDefaults) {
  std::ifstream shipped(ARRAYBRIDGE_SOURCE_FOLDER "/deploy/config/arraybridged.toml");
  std::stringstream text;
  text << shipped.rdbuf();
  Write(text.str());
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
  EXPECT_EQ(values(ours->help), values(defaults->help));
  for (const Setting& setting : Settings()) {
    if (setting.sources == Setting::Sources::kFlagOnly) continue;
    const std::string name = setting.key.substr(setting.key.rfind('.') + 1);
    EXPECT_THAT(text.str(), HasSubstr("\n" + std::string(setting.show ? "# " : "") + name + " = ")) << setting.key;
  }
}

}  // namespace
}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A Topic identifies the subject of a log line for programs: its name in JSON, and its MESSAGE_ID in the journal, which
// an entry of deploy/systemd/journal.catalog explains. Names and ids never change.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace arraybridge::daemon::log {

enum class Topic : uint8_t {
  kOther,
  kServing,
  kDraining,
  kCannotStart,
  kNoGpu,
  kDeviceLost,
  kLifelineCut,
  kReloaded,
  kReloadRefused,
  kKeptUntilRestart,
  kLinesDropped,
  kRecovered,
  kSessionDied,
  kQuotaRefused,
  kChannelAwaited,
  kLast = kChannelAwaited,
};

struct TopicFacts {
  std::string_view name;
  std::string_view message_id;  // 32 hexadecimal digits; empty: none
};
inline constexpr std::array<TopicFacts, static_cast<size_t>(Topic::kLast) + 1> kTopics = {{
    {"", ""},
    {"serving", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f501"},
    {"draining", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f502"},
    {"cannot_start", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f503"},
    {"no_gpu", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f504"},
    {"device_lost", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f505"},
    {"lifeline_cut", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f506"},
    {"reloaded", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f507"},
    {"reload_refused", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f508"},
    {"kept_until_restart", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f509"},
    {"lines_dropped", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f50a"},
    {"recovered", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f50b"},
    {"session_died", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f50c"},
    {"quota_refused", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f50d"},
    {"channel_awaited", "4f1c0a8e5b7d4d0f9a6c2e31b8d7f50e"},
}};
inline const TopicFacts& FactsOf(Topic topic) { return kTopics[static_cast<size_t>(topic)]; }

// The topic of a line and its fields: "session" → "7". Field names are lower case with underscores.
struct About {
  About() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  About(Topic what, std::vector<std::pair<std::string_view, std::string>> whom = {})
      : topic(what), fields(std::move(whom)) {}

  Topic topic = Topic::kOther;
  std::vector<std::pair<std::string_view, std::string>> fields;
};

}  // namespace arraybridge::daemon::log

// The table [namespace.NAME] of the file: what may be said of one namespace, and what it comes to where the table says
// less than [namespace.default].
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/access.h"
#include "daemon/config/quantity.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// What was said of it.
struct NamespaceDraft {
  std::optional<std::variant<uint64_t, Percent>> quota;
  std::optional<std::chrono::milliseconds> share_lifetime;
  std::optional<std::chrono::milliseconds> orphan_grace;
  std::optional<bool> withdraw_on_exit;
  AccessList access;
};

struct NamespaceSetting {
  std::string_view leaf;  // "quota" in [namespace.NAME]
  bool is_list = false;
  std::function<Status(std::string_view text, NamespaceDraft& draft)> read;
};
const std::vector<NamespaceSetting>& NamespaceSettings();
// Null: no such setting.
const NamespaceSetting* FindNamespaceSetting(std::string_view leaf);

// "namespace.NAME.leaf" as NAME and leaf; nothing for other keys, and for those of "default", which has its own rows in
// the table of settings. A name may hold dots.
std::optional<std::pair<std::string, std::string>> SplitNamespaceKey(const std::string& key);

// "keep" or "withdraw".
Result<bool> ReadOnPublisherExit(std::string_view text);

}  // namespace arraybridge

#include "daemon/config/namespace_table.h"

#include <algorithm>

#include "daemon/config/access_list.h"

namespace arraybridge {
namespace {

constexpr std::string_view kPrefix = "namespace.";

}  // namespace

const std::vector<NamespaceSetting>& NamespaceSettings() {
  static const std::vector<NamespaceSetting> settings = {
      {"quota", false, [](auto text, NamespaceDraft& d) { return Store(ReadBytesOrPercent(text), &d.quota); }},
      {"share_lifetime", false,
       [](auto text, NamespaceDraft& d) { return Store(ReadDuration(text), &d.share_lifetime); }},
      {"orphan_grace", false, [](auto text, NamespaceDraft& d) { return Store(ReadDuration(text), &d.orphan_grace); }},
      {"on_publisher_exit", false,
       [](auto text, NamespaceDraft& d) { return Store(ReadOnPublisherExit(text), &d.withdraw_on_exit); }},
      {"access", true, [](auto text, NamespaceDraft& d) { return Store(ReadAccessList(text), &d.access); }},
  };
  return settings;
}

const NamespaceSetting* FindNamespaceSetting(std::string_view leaf) {
  const auto& all = NamespaceSettings();
  const auto found = std::ranges::find(all, leaf, &NamespaceSetting::leaf);
  return found == all.end() ? nullptr : &*found;
}

std::optional<std::pair<std::string, std::string>> SplitNamespaceKey(const std::string& key) {
  if (!key.starts_with(kPrefix)) return std::nullopt;
  const size_t dot = key.rfind('.');
  if (dot < kPrefix.size()) return std::nullopt;
  std::string name = key.substr(kPrefix.size(), dot - kPrefix.size());
  if (name == "default") return std::nullopt;
  return std::pair{std::move(name), key.substr(dot + 1)};
}

Result<bool> ReadOnPublisherExit(std::string_view text) {
  if (text == "keep") return false;
  if (text == "withdraw") return true;
  return InvalidArgument("'", text, "' is neither keep nor withdraw");
}

}  // namespace arraybridge

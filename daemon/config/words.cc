// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/words.h"

#include <algorithm>

#include "daemon/config/quantity.h"

namespace arraybridge::daemon {

Result<bool> ReadBool(std::string_view text, std::span<const BoolWord> words) {
  const auto found = std::ranges::find(words, text, &BoolWord::word);
  if (found != words.end()) return found->value;
  return InvalidArgument("'", text, "' is neither ", words[0].word, " nor ", words[1].word);
}

Result<std::string> ReadOneOf(std::string_view text, const std::vector<std::string_view>& words) {
  if (std::ranges::find(words, text) != words.end()) return std::string(text);
  std::string all;
  for (const std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return InvalidArgument("'", text, "' is not one of ", all);
}

Result<uint64_t> ReadNumberIn(std::string_view text, uint64_t least, uint64_t most, std::string_view right) {
  auto number = ReadNumber(text);
  if (number.ok() && *number >= least && *number <= most) return number;
  return InvalidArgument("'", text, "' is not ", right);
}

// A relative path would depend on the working directory.
Result<std::string> ReadPath(std::string_view text) {
  if (text.empty() || text.starts_with('/')) return std::string(text);
  return InvalidArgument("'", text, "' is not an absolute path");
}

// The dynamic linker looks up a bare name as it does for the system's library. A relative path would depend on the
// working directory.
Result<std::string> ReadCudaDriver(std::string_view text) {
  constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  const bool is_name =
      text.find(".so") != std::string_view::npos && text.find_first_not_of(kNameLetters) == std::string_view::npos;
  if (text == "auto" || text == "none" || text.starts_with('/') || is_name) return std::string(text);
  return InvalidArgument("'", text,
                         "' is neither auto nor none nor a library's absolute path or name, such as libcuda.so.1");
}

Result<std::vector<std::string>> ReadHosts(std::string_view text) {
  std::vector<std::string> hosts;
  if (text.empty()) return hosts;
  for (const std::string_view word : SplitList(text)) {
    std::string& host = hosts.emplace_back(word);
    std::ranges::transform(host, host.begin(),
                           [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
    constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-._";
    if (!host.empty() && host.find_first_not_of(kNameLetters) == std::string::npos) continue;
    return InvalidArgument("'", word, "' is not a host name: use letters, digits, '-', '_' and '.', without a port");
  }
  return hosts;
}

}  // namespace arraybridge::daemon

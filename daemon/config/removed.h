// SPDX-License-Identifier: Apache-2.0
// The keys and flags that earlier versions had, and what replaces each.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace arraybridge {

// The end of an error about TCP, TLS, or clients that a certificate identifies.
inline constexpr char kRemovedWithTcp[] =
    "was removed in 0.2.0: arraybridged listens on Unix sockets only; run `ssh HOST arraybridgectl`, or forward a "
    "socket with `ssh -L`";

// The end of an error about a key or flag that this version does not have; empty: no version had it.
inline std::string_view WhyRemoved(std::string_view key_or_flag) {
  struct Removed {
    std::string_view beginning;  // of the key or flag
    std::string_view why;
  };
  constexpr Removed kRemoved[] = {
      {"server.tls.", kRemovedWithTcp},
      {"--tls-", kRemovedWithTcp},
      {"limits.tcp_", kRemovedWithTcp},
      {"limits.subject", kRemovedWithTcp},
  };
  const auto* const found = std::ranges::find_if(
      kRemoved, [key_or_flag](const Removed& each) { return key_or_flag.starts_with(each.beginning); });
  return found == std::end(kRemoved) ? "" : found->why;
}

// Of a value that was a list of addresses in earlier versions.
inline std::string WhyRemovedFromList(std::string_view text) {
  return text.find("tcp://") == text.npos ? "" : std::string(": TCP ") + kRemovedWithTcp;
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Access lists: the rights of users, groups and tokens on a shared resource, as the operator configured them, and the
// functions that compare them with a peer's credentials.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arraybridge::daemon {

// A peer's credentials from the kernel, and the token that it states.
struct Credentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::span<const uint32_t> groups;  // supplementary ones
  std::string_view token;            // stated by the peer; empty: none
};

enum class Right : uint8_t { kNone, kRead, kWrite };

struct AccessEntry {
  enum class Who : uint8_t { kAnyone, kUser, kGroup, kToken };
  Who who = Who::kAnyone;
  uint32_t id = 0;     // uid or gid
  std::string secret;  // the token
  Right right = Right::kWrite;
  friend bool operator==(const AccessEntry&, const AccessEntry&) = default;
};
using AccessList = std::vector<AccessEntry>;

// Takes the same time for a wrong token as for the right one. The time may reveal the length.
inline bool IsSameSecret(std::string_view one, std::string_view other) {
  if (one.size() != other.size() || one.empty()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]));
  }
  return difference == 0;
}

inline bool IsMeant(const AccessEntry& entry, const Credentials& peer) {
  switch (entry.who) {
    case AccessEntry::Who::kAnyone:
      return true;
    case AccessEntry::Who::kUser:
      return entry.id == peer.uid;
    case AccessEntry::Who::kGroup:
      return entry.id == peer.gid || std::ranges::find(peer.groups, entry.id) != peer.groups.end();
    case AccessEntry::Who::kToken:
      return IsSameSecret(entry.secret, peer.token);
  }
  return false;
}

// The highest right that an entry grants, whatever the order of the entries.
inline Right RightOf(const AccessList& list, const Credentials& peer) {
  Right right = Right::kNone;
  for (const AccessEntry& entry : list) {
    if (IsMeant(entry, peer)) right = std::max(right, entry.right);
  }
  return right;
}

// The settings of a namespace name: of each user's own namespace, or of the shared one.
struct NamespacePolicy {
  uint64_t quota_bytes = 0;                       // 0 = the capacity of all devices
  std::chrono::milliseconds share_lifetime{0};    // from publication to withdrawal; 0 = unlimited
  std::chrono::milliseconds orphan_grace{60000};  // for which an unnamed share outlives its maker
  bool withdraw_on_exit = false;                  // shares go with the session that published them
  AccessList access;                              // empty: every user has their own namespace of this name

  bool shared() const { return !access.empty(); }
  friend bool operator==(const NamespacePolicy&, const NamespacePolicy&) = default;
};
using NamespacePolicies = std::map<std::string, NamespacePolicy, std::less<>>;

}  // namespace arraybridge::daemon

// Access is who may do what with something that several users share, as the operator wrote it down: plain values, and
// the one function that compares them with who stands at a door.
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

namespace arraybridge {

// What the kernel says of a peer, and what it says of itself.
struct Credentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::span<const uint32_t> groups;  // supplementary ones
  std::string_view token;            // that it stated; empty: none
};

enum class Right : uint8_t { kNone, kRead, kWrite };

struct AccessEntry {
  enum class Who : uint8_t { kAnyone, kUser, kGroup, kToken };
  Who who = Who::kAnyone;
  uint32_t id = 0;     // of the user or the group
  std::string secret;  // of a token
  Right right = Right::kWrite;
  friend bool operator==(const AccessEntry&, const AccessEntry&) = default;
};
using AccessList = std::vector<AccessEntry>;

// Takes as long for a wrong token as for the right one; how long it is may be found out.
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

// The most that any of the entries grants. All are looked at, whichever comes first.
inline Right RightOf(const AccessList& list, const Credentials& peer) {
  Right right = Right::kNone;
  for (const AccessEntry& entry : list) {
    if (IsMeant(entry, peer)) right = std::max(right, entry.right);
  }
  return right;
}

// What holds in a namespace of one name: of every user's own, or of the one that users share.
struct NamespacePolicy {
  uint64_t quota_bytes = 0;                       // 0 = the capacity of all devices
  std::chrono::milliseconds share_lifetime{0};    // from its publication to its withdrawal; 0 = for ever
  std::chrono::milliseconds orphan_grace{60000};  // an unnamed share outlives its maker by so long
  bool withdraw_on_exit = false;                  // shares go with the session that published them
  AccessList access;                              // empty: every user has a namespace of this name to himself

  bool shared() const { return !access.empty(); }
  friend bool operator==(const NamespacePolicy&, const NamespacePolicy&) = default;
};
using NamespacePolicies = std::map<std::string, NamespacePolicy, std::less<>>;

}  // namespace arraybridge

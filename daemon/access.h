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

// What the kernel says of a peer, and what it says of itself; or, of one that came over TCP, its certificate alone.
struct Credentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::span<const uint32_t> groups;  // supplementary ones
  std::string_view token;            // that it stated; empty: none
  // What its certificate calls it: not empty exactly if it came over TCP. Then nothing of the above means anything.
  std::span<const std::string> subject;
};

enum class Right : uint8_t { kNone, kRead, kWrite };

struct AccessEntry {
  enum class Who : uint8_t { kAnyone, kUser, kGroup, kToken, kSubject };
  Who who = Who::kAnyone;
  uint32_t id = 0;     // of the user or the group
  std::string secret;  // of a token
  Right right = Right::kWrite;
  std::string name{};  // of a subject
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
  const bool is_remote = !peer.subject.empty();
  // Who wrote "anyone", a number or a token meant this host: another one's users are named one by one.
  if (is_remote != (entry.who == AccessEntry::Who::kSubject)) return false;
  switch (entry.who) {
    case AccessEntry::Who::kAnyone:
      return true;
    case AccessEntry::Who::kUser:
      return entry.id == peer.uid;
    case AccessEntry::Who::kGroup:
      return entry.id == peer.gid || std::ranges::find(peer.groups, entry.id) != peer.groups.end();
    case AccessEntry::Who::kToken:
      return IsSameSecret(entry.secret, peer.token);
    case AccessEntry::Who::kSubject:
      return std::ranges::find(peer.subject, entry.name) != peer.subject.end();
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

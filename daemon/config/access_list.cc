// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/access_list.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "daemon/config/files/setting_file.h"
#include "daemon/config/quantity.h"
#include "daemon/config/removed.h"

namespace arraybridge::daemon {
namespace {

using Who = AccessEntry::Who;

constexpr std::string_view kReadOnly = ":ro";
constexpr std::string_view kAdminGroup = "arraybridge-admin";
constexpr size_t kLookupBytes = 1 << 16;
constexpr size_t kGroupBytesMax = 1 << 24;  // a group with many members
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 256;

bool TakePrefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

Result<AccessEntry> NumberedEntry(Who who, std::string_view text) {
  const auto number = ReadNumber(text);
  // The largest number is not a user: the kernel reads it as "unchanged".
  if (!number.ok() || *number >= std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("'", text, "' is not the number of a user or group");
  }
  return AccessEntry{who, static_cast<uint32_t>(*number), {}, Right::kWrite};
}

// NOT_FOUND: there is no such group. UNAVAILABLE: the lookup failed.
Result<AccessEntry> GroupEntry(std::string_view name) {
  group entry{};
  group* found = nullptr;
  int failed = ERANGE;  // the entry of a group with many members does not fit
  std::string buffer(kLookupBytes, '\0');
  for (; failed == ERANGE && buffer.size() <= kGroupBytesMax; buffer.resize(4 * buffer.size())) {
    failed = ::getgrnam_r(std::string(name).c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (found != nullptr) return AccessEntry{Who::kGroup, found->gr_gid, {}, Right::kWrite};
  }
  if (failed != 0) return Unavailable("the lookup of group '", name, "' failed: ", std::strerror(failed));
  return NotFound("there is no group '", name, "'");
}

Result<AccessEntry> UserEntry(std::string_view name) {
  std::string buffer(kLookupBytes, '\0');
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(std::string(name).c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return InvalidArgument("'", name,
                           "' is neither same_uid, anyone, uid:N, gid:N, @group, token:FILE nor a user's name");
  }
  return AccessEntry{Who::kUser, found->pw_uid, {}, Right::kWrite};
}

Result<AccessEntry> TokenEntry(const std::string& path) {
  if (!path.starts_with('/')) return InvalidArgument("token:", path, ": is not an absolute path");
  const UniqueFd file = OpenSettingFile(path);
  if (!file.valid()) return InvalidArgument(path, ": ", std::strerror(errno));
  AB_ASSIGN_OR_RETURN(const auto text,
                      ReadSettingFile(file, path, S_IROTH | S_IWOTH, "other users may read or write it (chmod o-rw)"));
  std::string_view token = text;
  while (token.ends_with('\n') || token.ends_with('\r')) token.remove_suffix(1);
  if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax) {
    return InvalidArgument(path, ": a token has ", kTokenBytesMin, " to ", kTokenBytesMax, " bytes, in one line");
  }
  return AccessEntry{Who::kToken, 0, std::string(token), Right::kWrite};
}

Result<AccessEntry> NamedEntry(std::string_view text) {
  if (text == "anyone") return AccessEntry{};
  if (TakePrefix(&text, "uid:")) return NumberedEntry(Who::kUser, text);
  if (TakePrefix(&text, "gid:")) return NumberedEntry(Who::kGroup, text);
  if (TakePrefix(&text, "@")) return GroupEntry(text);
  if (TakePrefix(&text, "token:")) return TokenEntry(std::string(text));
  if (text.starts_with("subject:")) return InvalidArgument("'", text, "': subject:NAME ", kRemovedWithTcp);
  return UserEntry(text);
}

Result<AccessEntry> ReadEntry(std::string_view text) {
  const bool read_only = text.ends_with(kReadOnly);
  if (read_only) text.remove_suffix(kReadOnly.size());
  auto entry = NamedEntry(text);
  if (entry.ok() && read_only) entry->right = Right::kRead;
  return entry;
}

}  // namespace

std::string Written(const AccessList& list) {
  const auto word = [](const AccessEntry& entry) {
    if (entry.who == Who::kAnyone) return std::string("anyone");
    if (entry.who == Who::kToken) return std::string("token");
    return (entry.who == Who::kUser ? "uid:" : "gid:") + std::to_string(entry.id);
  };
  std::string all;
  for (const AccessEntry& entry : list) {
    all += (all.empty() ? "" : ",") + word(entry);
    if (entry.right == Right::kRead) all += kReadOnly;
  }
  return all;
}

AccessList DefaultAdmins() {
  AccessList admins = {{Who::kUser, 0, {}, Right::kWrite}};
  if (::geteuid() != 0) admins.push_back({Who::kUser, ::geteuid(), {}, Right::kWrite});
  if (auto group = GroupEntry(kAdminGroup); group.ok()) admins.push_back(*std::move(group));
  return admins;
}

Result<AccessList> ReadAccessList(std::string_view text) {
  AccessList list;
  const auto entries = SplitList(text);
  if (entries.size() == 1 && entries.front() == kSameUid) return list;
  for (const std::string_view each : entries) {
    if (each.empty()) return InvalidArgument("an access list has at least one entry, and no empty entry");
    if (each.starts_with(kSameUid)) {
      return InvalidArgument("same_uid must be the only entry: it gives each user a namespace of this name");
    }
    AB_ASSIGN_OR_RETURN(auto entry, ReadEntry(each));
    list.push_back(std::move(entry));
  }
  return list;
}

Result<AccessList> ReadAdmins(std::string_view text) {
  std::string existing;
  const bool may_miss = GroupEntry(kAdminGroup).status().code() == Code::kNotFound;
  for (const std::string_view entry : SplitList(text)) {
    std::string_view name = entry;
    if (name.ends_with(kReadOnly)) name.remove_suffix(kReadOnly.size());
    if (may_miss && TakePrefix(&name, "@") && name == kAdminGroup) continue;
    existing += (existing.empty() ? "" : ",") + std::string(entry);
  }
  auto list = ReadAccessList(existing.empty() ? text : existing);
  if (!list.ok()) return list;
  if (!list->empty() && std::ranges::find(*list, Who::kToken, &AccessEntry::who) == list->end()) return list;
  return InvalidArgument("an administrator is a user or a group; tokens are refused");
}

}  // namespace arraybridge::daemon

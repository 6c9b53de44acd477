// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/admin/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string_view>
#include <system_error>
#include <vector>

#include "client/ctl/output/table.h"
#include "client/ctl/temp_file.h"
#include "proto/boundary/text.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {
namespace {

std::string FreshToken() {
  std::array<uint8_t, 16> random{};
  AB_CHECK(::getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()));
  return Hex({reinterpret_cast<const char*>(random.data()), random.size()}) + "\n";
}

// One token entry of the access list of one namespace.
struct Entry {
  std::string ns;
  std::string file;
  std::string right;   // "read" or "write"
  std::string origin;  // file, line and column
};

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// Reads the values of "namespace.NAME.access", which are comma-separated lists.
std::vector<Entry> EntriesIn(const v1::GetConfigResponse& config) {
  constexpr std::string_view kBefore = "namespace.", kBehind = ".access", kToken = "token:", kReadOnly = ":ro";
  std::vector<Entry> entries;
  for (const v1::ConfigValue& value : config.values()) {
    const std::string_view key = value.key();
    if (!key.starts_with(kBefore) || !key.ends_with(kBehind)) continue;
    const std::string ns(key.substr(kBefore.size(), key.size() - kBefore.size() - kBehind.size()));
    std::string_view rest = value.value();
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view one = Trimmed(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      if (!one.starts_with(kToken)) continue;
      one.remove_prefix(kToken.size());
      const bool read_only = one.ends_with(kReadOnly);
      if (read_only) one.remove_suffix(kReadOnly.size());
      entries.push_back({ns, std::string(one), read_only ? "read" : "write", value.origin()});
    }
  }
  return entries;
}

Result<std::vector<Entry>> Entries(AdminConnection& connection) {
  v1::GetConfigResponse config;
  AB_RETURN_IF_ERROR(connection.Ask(&v1::Admin::Stub::GetConfig, v1::GetConfigRequest(), &config));
  return EntriesIn(config);
}

// The state of the file, which the broker reads at its next start or reload.
std::string StateOf(const std::string& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return errno == ENOENT ? "is gone" : std::strerror(errno);
  return S_ISREG(found.st_mode) ? "is there" : "is no file";
}

// True if both paths lead to one file, through links or not.
bool IsSameFile(const std::string& left, const struct stat& right) {
  struct stat found {};
  return ::stat(left.c_str(), &found) == 0 && found.st_dev == right.st_dev && found.st_ino == right.st_ino;
}

// True if a broker would accept the content as a token. Other content must not be overwritten.
bool HoldsToken(const std::string& path) {
  constexpr size_t kBytesMin = 16, kBytesMax = 256;
  std::string text(kBytesMax + 3, '\0');
  std::ifstream from(path, std::ios::binary);
  from.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(from.gcount()));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text.size() >= kBytesMin && text.size() <= kBytesMax && text.find('\n') == std::string::npos;
}

// Replaces the file in one step: readers see the old token or the new one. REQUIRES: `path` is no symbolic link.
Status Replace(const std::string& path, const struct stat& old, const std::string& text) {
  if (!S_ISREG(old.st_mode)) return FailedPrecondition(path, ": is not a file");
  if (old.st_nlink != 1) {
    return FailedPrecondition(path, ": the file has ", old.st_nlink,
                              " hard links, and the others would keep the old token: remove them first");
  }
  if (!HoldsToken(path)) return FailedPrecondition(path, ": holds no token (one line of 16 to 256 bytes)");
  TempFile temp_file(path, 0600);
  AB_RETURN_IF_ERROR(temp_file.SetOwner(old.st_uid, old.st_gid));
  AB_RETURN_IF_ERROR(temp_file.SetMode(old.st_mode & 07777));
  AB_RETURN_IF_ERROR(temp_file.Write(text.data(), text.size()));
  return temp_file.Finish(true);
}

void PrintEntries(const std::vector<Entry>& entries, const Options& options, std::ostream& out) {
  Table table({"NAMESPACE", "RIGHT", "FILE", "STATE", "ORIGIN"}, StyleOf(options));
  for (const Entry& entry : entries) {
    table.Add({entry.ns, entry.right, entry.file, StateOf(entry.file), entry.origin});
  }
  table.Print(out, options.header);
}

}  // namespace

Status CreateToken(const std::string& file, std::ostream& out) {
  const std::string token = FreshToken();
  if (file.empty()) {
    out << token;
    return Ok();
  }
  const UniqueFd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made.valid() && errno == EEXIST) return AlreadyExists(file, ": already exists");
  if (!made.valid()) return PermissionDenied(file, ": ", std::strerror(errno));
  const ssize_t written = ::write(made.get(), token.data(), token.size());
  if (written == static_cast<ssize_t>(token.size())) return Ok();
  const int why = written < 0 ? errno : ENOSPC;
  ::unlink(file.c_str());
  return Internal(file, ": ", std::strerror(why));
}

Status RevokeToken(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(auto all, Entries(connection));
  // A symbolic link is followed: its target is replaced.
  std::error_code failed;
  const std::string path = std::filesystem::weakly_canonical(admin.subject, failed);
  struct stat old {};
  if (failed || ::stat(path.c_str(), &old) != 0) return FileFailed(admin.subject, failed ? failed.value() : errno);
  std::erase_if(all, [&](const Entry& entry) { return !IsSameFile(entry.file, old); });
  if (all.empty()) return NotFound(path, ": opens no namespace of this broker");
  AB_RETURN_IF_ERROR(Replace(path, old, FreshToken()));
  const Status kept = SyncFolderOf(path);
  v1::ReloadResponse reloaded;
  const Status sent = connection.Ask(&v1::Admin::Stub::Reload, v1::ReloadRequest(), &reloaded);
  if (!sent.ok()) {
    return Status(sent.code(), Concat("the old token stays valid until the broker reloads: ", path,
                                      " holds the new token, but the broker could not be reloaded: ", sent.message()));
  }
  PrintEntries(all, options, out);
  if (kept.ok()) return Ok();
  return Status(kept.code(),
                Concat("the old token is revoked, but may return to the file after a power failure: ", kept.message()));
}

Status LsTokens(AdminConnection& connection, const Options& options, const AdminOptions&, std::ostream& out) {
  const auto entries = Entries(connection);
  if (entries.ok()) PrintEntries(*entries, options, out);
  return entries.status();
}

}  // namespace arraybridge::ctl

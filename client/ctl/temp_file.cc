// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/temp_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "proto/boundary/failpoint.h"

namespace arraybridge::ctl {
namespace {

// Random, because process IDs repeat, especially in containers, and a killed command can leave its file behind.
std::string TempNameOf(const std::filesystem::path& path) {
  uint32_t number = 0;
  AB_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number);
  return std::filesystem::path(path).replace_filename(Concat(".", path.filename().string(), ".", number));
}

constexpr char kOpenFiles[] = "/proc/self/fd";

bool IsThere(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;
}

// As rename(), but fails if the new name exists. Sets errno.
bool RenameToNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL) return false;
  // The file system does not support RENAME_NOREPLACE.
  if (IsThere(to)) {
    errno = EEXIST;
    return false;
  }
  return ::rename(from.c_str(), to.c_str()) == 0;
}

// Sets errno.
bool Link(const UniqueFd& file, const std::string& to) {
  const std::string from = Concat(kOpenFiles, "/", file.get());
  return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

Status FileFailed(const std::string& path, int why) {
  const bool denied = why == EACCES || why == EPERM || why == EROFS;
  return MakeStatus(denied ? Code::kPermissionDenied : Code::kInternal, path, ": ", std::strerror(why));
}

TempFile::TempFile(std::string path, mode_t mode) : path_(std::move(path)), temp_name_(TempNameOf(path_)) {
  const std::string folder = std::filesystem::path(temp_name_).parent_path();
  // An unnamed file gets its name through /proc.
  if (!Failpoint("unnamed_temp_file") && IsThere(kOpenFiles)) {
    file_.reset(::open(folder.empty() ? "." : folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode));
  }
  if (!file_.valid()) OpenNamed(mode);
}

void TempFile::OpenNamed(mode_t mode) {
  named_.emplace();
  file_.reset(::open(temp_name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  why_not_ = errno;
}

TempFile::~TempFile() {
  if (named_ && file_.valid() && !finished_) ::unlink(temp_name_.c_str());
}

Status TempFile::SetOwner(uid_t user, gid_t group) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  return ::fchown(file_.get(), user, group) == 0 ? Ok() : FileFailed(path_, errno);
}

Status TempFile::SetMode(mode_t mode) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  return ::fchmod(file_.get(), mode) == 0 ? Ok() : FileFailed(path_, errno);
}

Status TempFile::Write(const void* bytes, uint64_t count) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  for (uint64_t at = 0; at < count;) {
    if (named_ && named_->requested()) return MakeStatus(Code::kAborted, path_, ": the command was ended");
    const ssize_t part = ::write(file_.get(), static_cast<const char*>(bytes) + at, count - at);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return FileFailed(path_, errno);
    at += static_cast<uint64_t>(part);
  }
  return Ok();
}

// Sets errno.
bool TempFile::TakeName() const { return named_ ? RenameToNew(temp_name_, path_) : Link(file_, path_); }

// An unnamed file cannot replace a name in one step: it is linked under the temporary name first. Signals wait for the
// two steps.
bool TempFile::ReplaceName() const {
  const EndLater meanwhile;
  if (!named_ && !Link(file_, temp_name_)) return false;
  if (::rename(temp_name_.c_str(), path_.c_str()) == 0) return true;
  const int why = errno;
  if (!named_) ::unlink(temp_name_.c_str());
  errno = why;
  return false;
}

Status TempFile::Finish(bool replace) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  if (::fsync(file_.get()) != 0) return FileFailed(path_, errno);
  finished_ = replace ? ReplaceName() : TakeName();
  if (finished_) return Ok();
  return errno == EEXIST ? AlreadyExists(path_, ": already exists") : FileFailed(path_, errno);
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const UniqueFd opened(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return opened.valid() && ::fsync(opened.get()) == 0 ? Ok() : FileFailed(folder, errno);
}

}  // namespace arraybridge::ctl

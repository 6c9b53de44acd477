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

// Random: process numbers come again, above all in containers, and a killed command leaves its draft.
std::string DraftNameOf(const std::filesystem::path& path) {
  uint32_t number = 0;
  AB_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number);
  return std::filesystem::path(path).replace_filename(Concat(".", path.filename().string(), ".", number));
}

constexpr char kOpenFiles[] = "/proc/self/fd";

bool IsThere(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;
}

// As rename(), but to a name that nothing has. Sets errno.
bool RenameToNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL) return false;
  // A file system that cannot be asked so.
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

Draft::Draft(std::string path, mode_t mode) : path_(std::move(path)), draft_(DraftNameOf(path_)) {
  const std::string folder = std::filesystem::path(draft_).parent_path();
  // Without /proc nothing could give it a name.
  if (!Failpoint("unnamed_draft") && IsThere(kOpenFiles)) {
    file_.reset(::open(folder.empty() ? "." : folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode));
  }
  if (!file_.valid()) OpenNamed(mode);
}

void Draft::OpenNamed(mode_t mode) {
  named_.emplace();
  file_.reset(::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  why_not_ = errno;
}

Draft::~Draft() {
  if (named_ && file_.valid() && !finished_) ::unlink(draft_.c_str());
}

Status Draft::SetOwner(uid_t user, gid_t group) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  return ::fchown(file_.get(), user, group) == 0 ? Ok() : FileFailed(path_, errno);
}

Status Draft::SetMode(mode_t mode) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  return ::fchmod(file_.get(), mode) == 0 ? Ok() : FileFailed(path_, errno);
}

Status Draft::Write(const void* bytes, uint64_t count) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  for (uint64_t at = 0; at < count;) {
    if (named_ && named_->asked()) return MakeStatus(Code::kAborted, path_, ": the command was ended");
    const ssize_t part = ::write(file_.get(), static_cast<const char*>(bytes) + at, count - at);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return FileFailed(path_, errno);
    at += static_cast<uint64_t>(part);
  }
  return Ok();
}

// Sets errno.
bool Draft::TakeName() const { return named_ ? RenameToNew(draft_, path_) : Link(file_, path_); }

// What has no name cannot take one that is taken: for the moment between the two steps, nobody ends the command.
bool Draft::ReplaceName() const {
  const EndLater meanwhile;
  if (!named_ && !Link(file_, draft_)) return false;
  if (::rename(draft_.c_str(), path_.c_str()) == 0) return true;
  const int why = errno;
  if (!named_) ::unlink(draft_.c_str());
  errno = why;
  return false;
}

Status Draft::Finish(bool replace) {
  if (!file_.valid()) return FileFailed(path_, why_not_);
  if (::fsync(file_.get()) != 0) return FileFailed(path_, errno);
  finished_ = replace ? ReplaceName() : TakeName();
  if (finished_) return Ok();
  return errno == EEXIST ? AlreadyExists(path_, ": is there already") : FileFailed(path_, errno);
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const UniqueFd opened(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return opened.valid() && ::fsync(opened.get()) == 0 ? Ok() : FileFailed(folder, errno);
}

}  // namespace arraybridge::ctl

// SPDX-License-Identifier: Apache-2.0
#include "daemon/mover/tier_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kPrefix = "ab-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kPartSuffix = ".safetensors.part";
constexpr size_t kDigits = 32;
constexpr char kLock[] = "lock";

Status CannotUse(const char* what) {
  return FailedPrecondition("the directory of [tiers] cannot be used: ", what, ": ", std::strerror(errno));
}

// Another process cannot foresee it.
std::string FreshName() {
  std::array<uint64_t, 2> random{};
  AB_CHECK(::getrandom(random.data(), sizeof random, 0) == sizeof random);
  std::array<char, kDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                static_cast<unsigned long long>(random[0]),   // NOLINT(google-runtime-int): printf's type
                static_cast<unsigned long long>(random[1]));  // NOLINT(google-runtime-int)
  return Concat(kPrefix, std::string_view(digits.data(), kDigits), kSuffix);
}

bool HasForm(std::string_view name, std::string_view suffix) {
  if (name.size() != kPrefix.size() + kDigits + suffix.size()) return false;
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return false;
  const std::string_view digits = name.substr(kPrefix.size(), kDigits);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status Full(const char* key, uint64_t bytes, const Quota& of) {
  return ResourceExhausted("no room for ", bytes, " bytes in files: ", of.used(), " of ", of.bytes(), " bytes (", key,
                           ") are used: withdraw shares, or raise ", key)
      .Because("DISK_FULL")
      .With("limit", key)
      .With("value", std::to_string(of.bytes()));
}

// A user who can write there could give durable shares to other users' namespaces.
Status CheckIsOurs(const UniqueFd& directory) {
  struct stat facts {};
  if (::fstat(directory.get(), &facts) != 0) return CannotUse("it cannot be looked at");
  if (facts.st_uid == ::geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0) return Ok();
  return FailedPrecondition("the directory of [tiers] belongs to uid ", facts.st_uid,
                            ", or others may write there: give it to uid ", ::geteuid(), ", with mode 0700");
}

}  // namespace

TierFile::~TierFile() {
  if (!forgotten_) directory_->Drop(name_, kept_);
}

Result<std::shared_ptr<TierDirectory>> TierDirectory::Open(const TierTerms& terms) {
  if (::mkdir(terms.directory.c_str(), 0700) != 0 && errno != EEXIST) return CannotUse("it cannot be made");
  UniqueFd directory(::open(terms.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return CannotUse("it cannot be opened");
  AB_RETURN_IF_ERROR(CheckIsOurs(directory));
  UniqueFd lock(::openat(directory.get(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return CannotUse("its lock cannot be opened");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return CannotUse("its lock cannot be taken");
    return FailedPrecondition("another daemon uses the directory of [tiers]: name another one in tiers.directory");
  }
  return std::make_shared<TierDirectory>(terms, std::move(directory), std::move(lock));
}

TierDirectory::TierDirectory(const TierTerms& terms, UniqueFd directory, UniqueFd lock)
    : terms_(terms),
      directory_(std::move(directory)),
      lock_(std::move(lock)),
      all_(std::make_shared<Quota>(terms.disk_max)) {}

TierDirectory::~TierDirectory() { RemoveDropped(); }

const std::shared_ptr<Quota>& TierDirectory::Of(uint32_t uid) {
  std::shared_ptr<Quota>& quota = of_user_[uid];
  if (quota == nullptr) quota = std::make_shared<Quota>(terms_.of_user());
  return quota;
}

Result<std::shared_ptr<TierFile>> TierDirectory::Reserve(uint32_t uid, uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (!off_.empty()) {
    return Unavailable("no bytes are moved to files: ", off_,
                       " (arraybridgectl tier ls): mend it, then restart the daemon")
        .Because("TIER_OFF");
  }
  const auto& user = Of(uid);
  auto charge = Charge::Of(all_, bytes, user);
  if (charge) return std::make_shared<TierFile>(shared_from_this(), FreshName(), *std::move(charge));
  const bool is_users = user->bytes() - std::min(user->used(), user->bytes()) < bytes;
  return is_users && terms_.disk_max_per_user != 0 ? Full("tiers.disk_max_per_user", bytes, *user)
                                                   : Full("tiers.disk_max", bytes, *all_);
}

std::shared_ptr<TierFile> TierDirectory::Adopt(std::string name, uint32_t uid, uint64_t bytes) {
  const MutexLock lock(mutex_);
  return std::make_shared<TierFile>(shared_from_this(), std::move(name), Charge::Again(all_, bytes, Of(uid)));
}

std::vector<std::string> TierDirectory::List() const {
  std::vector<std::string> names;
  const int copy = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
  if (entries == nullptr) return names;
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name != kLock) names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

bool TierDirectory::IsOwnName(std::string_view name) { return HasForm(name, kSuffix); }
bool TierDirectory::IsPartName(std::string_view name) { return HasForm(name, kPartSuffix); }

Result<UniqueFd> TierDirectory::Open(const std::string& name, int flags) const {
  // O_NONBLOCK: a pipe of this name, too, is opened at once.
  UniqueFd file(::openat(directory_.get(), name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (file.valid()) return file;
  const bool is_gone = errno == ENOENT;
  return FailedPrecondition("the file of the share cannot be opened: ", std::strerror(errno))
      .Because(is_gone ? "FILE_GONE" : "");
}

Status TierDirectory::Rename(const std::string& from, const std::string& to) const {
  if (::renameat(directory_.get(), from.c_str(), directory_.get(), to.c_str()) == 0) return Ok();
  return FailedPrecondition("the file of the share cannot be renamed: ", std::strerror(errno));
}

bool TierDirectory::SetAside(const std::string& name) const { return Rename(name, name + ".corrupt").ok(); }

void TierDirectory::Remove(const std::string& name) const { ::unlinkat(directory_.get(), name.c_str(), 0); }

Status TierDirectory::Sync() const {
  if (::fsync(directory_.get()) == 0) return Ok();
  return FailedPrecondition("the directory of [tiers] cannot be written: ", std::strerror(errno));
}

void TierDirectory::TurnOff(std::string why) {
  const MutexLock lock(mutex_);
  if (off_.empty()) off_ = std::move(why);
}

std::string TierDirectory::off() const {
  const MutexLock lock(mutex_);
  return off_;
}

void TierDirectory::WhenDropped(std::function<void()> wake) {
  const MutexLock lock(mutex_);
  wake_ = std::move(wake);
}

void TierDirectory::Drop(const std::string& name, bool kept) {
  const MutexLock lock(mutex_);
  if (kept && ends_) return;
  dropped_.push_back(name);
  if (wake_) wake_();
}

void TierDirectory::RemoveDropped() {
  std::vector<std::string> dropped;
  {
    const MutexLock lock(mutex_);
    dropped.swap(dropped_);
  }
  if (!dropped.empty()) static_cast<void>(Failpoint("tier_remove"));
  for (const std::string& name : dropped) Remove(name);
}

void TierDirectory::End() {
  const MutexLock lock(mutex_);
  ends_ = true;
  wake_ = nullptr;
}

}  // namespace arraybridge::daemon

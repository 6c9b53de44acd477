// SPDX-License-Identifier: Apache-2.0
// A TierDirectory is the one directory in which a broker keeps the bytes of shares. It has a lock, so that one daemon
// uses it at a time, and limits. A TierFile is one file in it, and its charge; the file is removed with the object,
// unless it is durable and the daemon ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/ledger/charge.h"
#include "daemon/config/tiers/tier_terms.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

class TierDirectory;

class TierFile {
 public:
  TierFile(std::shared_ptr<TierDirectory> directory, std::string name, Charge charge)
      : directory_(std::move(directory)), name_(std::move(name)), charge_(std::move(charge)) {}
  ~TierFile();
  TierFile(const TierFile&) = delete;
  TierFile& operator=(const TierFile&) = delete;

  const std::string& name() const { return name_; }
  std::string part_name() const { return name_ + ".part"; }
  // It stays when the daemon ends, or under another name.
  void Keep() { kept_.store(true); }
  void Forget() { forgotten_.store(true); }

 private:
  const std::shared_ptr<TierDirectory> directory_;
  const std::string name_;
  const Charge charge_;
  std::atomic<bool> kept_{false};
  std::atomic<bool> forgotten_{false};
};

// Thread-safe.
class TierDirectory : public std::enable_shared_from_this<TierDirectory> {
 public:
  // Makes the directory if there is none. FAILED_PRECONDITION: another daemon uses it, or it cannot be used.
  static Result<std::shared_ptr<TierDirectory>> Open(const TierTerms& terms);
  TierDirectory(const TierTerms& terms, UniqueFd directory, UniqueFd lock);
  ~TierDirectory();
  TierDirectory(const TierDirectory&) = delete;
  TierDirectory& operator=(const TierDirectory&) = delete;

  // A name for a new file of this many bytes. RESOURCE_EXHAUSTED: tiers.disk_max, tiers.disk_max_per_user. UNAVAILABLE:
  // the tier is off.
  Result<std::shared_ptr<TierFile>> Reserve(uint32_t uid, uint64_t bytes);
  // A file that is there.
  std::shared_ptr<TierFile> Adopt(std::string name, uint32_t uid, uint64_t bytes);
  // The names of all files but the lock. The broker's own have the form of IsOwnName.
  std::vector<std::string> List() const;
  static bool IsOwnName(std::string_view name);
  static bool IsPartName(std::string_view name);

  // FAILED_PRECONDITION; FILE_GONE: there is no such file.
  Result<UniqueFd> Open(const std::string& name, int flags) const;
  Status Rename(const std::string& from, const std::string& to) const;
  // Renames a damaged file to NAME.corrupt. False: it is gone.
  bool SetAside(const std::string& name) const;
  void Remove(const std::string& name) const;
  // Waits until the disk has the directory's entries.
  Status Sync() const;

  // From now on nothing is written. Keeps the first reason.
  void TurnOff(std::string why);
  std::string off() const;
  uint64_t used() const { return all_->used(); }
  uint64_t files() const { return all_->charges(); }
  uint64_t bytes_max() const { return all_->bytes(); }

  // `wake` is called when there is a file to remove, on any thread, with any lock held; it must not wait.
  void WhenDropped(std::function<void()> wake);
  // Removes the files that were dropped since the last call.
  void RemoveDropped();
  // The daemon ends: files that are Kept stay from now on.
  void End();

 private:
  friend class TierFile;
  void Drop(const std::string& name, bool kept);
  const std::shared_ptr<Quota>& Of(uint32_t uid) AB_REQUIRES(mutex_);

  const TierTerms terms_;
  const UniqueFd directory_;
  const UniqueFd lock_;
  const std::shared_ptr<Quota> all_;
  mutable Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Quota>> of_user_ AB_GUARDED_BY(mutex_);
  std::vector<std::string> dropped_ AB_GUARDED_BY(mutex_);
  std::function<void()> wake_ AB_GUARDED_BY(mutex_);
  std::string off_ AB_GUARDED_BY(mutex_);
  bool ends_ AB_GUARDED_BY(mutex_) = false;
};

}  // namespace arraybridge::daemon

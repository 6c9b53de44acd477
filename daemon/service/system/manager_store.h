// SPDX-License-Identifier: Apache-2.0
// The ManagerStore is the DescriptorStore over sd_notify's datagrams (FDSTORE=1). Its holder is the service manager or
// the keeper; both receive the same datagrams. No holder says how many entries it has, and systemd ignores silently
// what exceeds its maximum, so the ManagerStore counts by itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/memory/descriptor_store.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

class ManagerStore final : public DescriptorStore {
 public:
  // The limits of one exec: $LISTEN_FDNAMES is one string of the environment, and Linux refuses 128 KiB.
  static constexpr uint64_t kEntriesMax = 8000;
  static constexpr uint64_t kNameBytesMax = 120 << 10;
  // The status with which the daemon ends to be started anew, from the program that is then on the disk (EX_TEMPFAIL).
  static constexpr int kExitStartAnew = 75;

  // Null unless $FDSTORE, the number of entries, is set. The keeper and systemd from 254 on set it; our unit sets it
  // for older systemd, beside FileDescriptorStoreMax=, so that an operator who removes one line sees the other.
  // `received`: the names of the descriptors that this process was started with.
  static std::unique_ptr<ManagerStore> FromEnvironment(const std::vector<std::string>& received);

  Status Store(std::span<const Entry> entries, Until until = Until::kHandled) override AB_EXCLUDES(mutex_);
  // If the holder's queue is full, the datagram waits here and is sent with the next call of Store or Remove. If this
  // process dies before that, the entry keeps its memory until the next daemon starts, which removes entries that it
  // does not know.
  void Remove(std::string_view name) override AB_EXCLUDES(mutex_);
  Usage usage() const override AB_EXCLUDES(mutex_);

  // Becomes readable when the keeper has ended; -1: the holder is the service manager, which does not end.
  int keeper() const { return keeper_.get(); }
  // Why the previous daemon ended, as far as the holder says it.
  std::string LastEnd() const;
  // From here on, Store answers UNAVAILABLE at once.
  void KeeperEnded() AB_EXCLUDES(mutex_);
  // Whether the next daemon will receive the entries after this one has ended with `exit_status`. The keeper ends with
  // a daemon that returns 0, and its memory with it. The service manager does not tell a stop from a restart, so it
  // counts as one that keeps them.
  bool KeepsAfter(int exit_status) const AB_EXCLUDES(mutex_);

 private:
  struct Removal {
    std::string name;
    uint64_t entries = 0;
  };
  using Deadline = std::chrono::steady_clock::time_point;

  ManagerStore(UniqueFd socket, bool is_below_keeper, uint64_t entries_max, const std::vector<std::string>& received);
  Status Reserve(std::span<const Entry> entries) AB_EXCLUDES(mutex_);
  Status SendRemovals(Deadline deadline) AB_EXCLUDES(mutex_);
  // False: removals are left, because the holder's queue is full.
  bool SendRemovalsNow() AB_REQUIRES(mutex_);
  Status Send(std::string_view text, int fd, Deadline deadline);
  Status Barrier(Deadline deadline);

  const UniqueFd socket_;  // non-blocking, connected to the holder
  const bool is_below_keeper_;
  const UniqueFd keeper_;  // its pidfd
  const uint64_t entries_max_;
  mutable Mutex mutex_;
  std::map<std::string, uint64_t, std::less<>> held_ AB_GUARDED_BY(mutex_);  // entries by name
  std::deque<Removal> removals_ AB_GUARDED_BY(mutex_);  // still in entries_ and name_bytes_: the holder has them
  uint64_t entries_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t name_bytes_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t refused_total_ AB_GUARDED_BY(mutex_) = 0;
  bool has_ended_ AB_GUARDED_BY(mutex_) = false;
};

// Stores one descriptor that the next daemon can do without. If that fails, the log says so. Null: nothing is stored.
void StoreOrWarn(DescriptorStore* store, std::string_view name, int fd, std::string_view what);

}  // namespace arraybridge::daemon

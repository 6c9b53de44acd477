// SPDX-License-Identifier: Apache-2.0
// The objects of other processes (GPU memory, events) that this process has opened, by their 64-byte handles. Each is
// opened once, shared by all users in this process, and closed by the last one. A second opening would at best return
// the first.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "client/memory/cuda/cuda_devices.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe. REQUIRES: never destroyed, since opened objects may outlive other static objects.
template <class Opened>
class CudaOpenings {
 public:
  // Returns the object of `key`, or opens it with `open`, a function that returns a Result of a unique_ptr. The driver
  // may open and close slowly while a GPU is busy: only users of the same key wait for that.
  template <class Open>
  Result<std::shared_ptr<const Opened>> Get(const std::string& key, Open open) {
    const std::shared_ptr<Entry> entry = Join(key);
    Status failed;
    {
      MutexLock lock(entry->driver);
      if (entry->opened == nullptr) {
        auto fresh = open();
        failed = fresh.status();
        if (fresh.ok()) entry->opened = *std::move(fresh);
      }
      if (failed.ok()) {
        const auto leave = [this, key, entry](const Opened*) { Leave(key, *entry); };
        return std::shared_ptr<const Opened>(entry->opened.get(), leave);
      }
    }
    Leave(key, *entry);
    return failed;
  }

 private:
  struct Entry {
    Mutex driver;  // held while the driver opens or closes: an object that is being closed must not be opened
    std::unique_ptr<const Opened> opened AB_GUARDED_BY(driver);
    uint64_t users = 0;  // guarded by the table's mutex
  };

  std::shared_ptr<Entry> Join(const std::string& key) {
    MutexLock lock(mutex_);
    std::shared_ptr<Entry>& entry = open_[key];
    if (entry == nullptr) entry = std::make_shared<Entry>();
    ++entry->users;
    return entry;
  }

  void Leave(const std::string& key, Entry& entry) {
    // In a forked child the openings belong to the parent, and the locks may stay held for ever.
    if (CudaDevices::IfUsed() == nullptr) return;
    {
      MutexLock lock(mutex_);
      if (--entry.users > 0) return;
    }
    MutexLock closing(entry.driver);
    {
      MutexLock lock(mutex_);
      if (entry.users > 0) return;  // another user has come meanwhile
    }
    entry.opened = nullptr;
    MutexLock lock(mutex_);
    const auto found = open_.find(key);
    if (entry.users == 0 && found != open_.end() && found->second.get() == &entry) open_.erase(found);
  }

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> open_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

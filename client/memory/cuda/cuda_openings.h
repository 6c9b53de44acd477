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
  // Returns the object of `key`, or opens it with `open`, a function that returns a Result of a unique_ptr.
  template <class Open>
  Result<std::shared_ptr<const Opened>> Get(const std::string& key, Open open) {
    MutexLock lock(mutex_);
    auto found = open_.find(key);
    if (found == open_.end()) {
      AB_ASSIGN_OR_RETURN(auto fresh, open());
      found = open_.emplace(key, Entry{std::move(fresh)}).first;
    }
    ++found->second.users;
    return std::shared_ptr<const Opened>(found->second.opened.get(), [this, key](const Opened*) { Release(key); });
  }

 private:
  struct Entry {
    std::unique_ptr<const Opened> opened;
    uint64_t users = 0;
  };

  void Release(const std::string& key) {
    // In a forked child the openings belong to the parent, and the lock may stay held for ever.
    if (CudaDevices::IfUsed() == nullptr) return;
    MutexLock lock(mutex_);
    const auto found = open_.find(key);
    if (--found->second.users == 0) open_.erase(found);
  }

  // Held while the driver opens or closes, unlike other locks: an object that is being closed must not be opened.
  Mutex mutex_;
  std::map<std::string, Entry> open_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

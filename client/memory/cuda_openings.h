// What this process opened of others (GPU memory, events), by the 64 bytes that name it: opened once, shared by
// everybody here who uses it, closed by whoever lets go last. A second opening at a time would be the first one's at
// best.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "client/memory/cuda_devices.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe. REQUIRES: never destroyed, since what was opened may be what dies last.
template <class Opened>
class CudaOpenings {
 public:
  // What `key` names, or else what `open` opens: a function that returns a Result of a unique_ptr.
  template <class Open>
  Result<std::shared_ptr<const Opened>> Get(const std::string& key, Open open) {
    MutexLock lock(mutex_);
    auto found = open_.find(key);
    if (found == open_.end()) {
      auto fresh = open();
      if (!fresh.ok()) return fresh.status();
      found = open_.emplace(key, Entry{*std::move(fresh)}).first;
    }
    ++found->second.users;
    return std::shared_ptr<const Opened>(found->second.opened.get(), [this, key](const Opened*) { LetGo(key); });
  }

 private:
  struct Entry {
    std::unique_ptr<const Opened> opened;
    uint64_t users = 0;
  };

  void LetGo(const std::string& key) {
    // In a forked child the openings are the parent's, and the lock may be held for ever.
    if (CudaDevices::IfUsed() == nullptr) return;
    MutexLock lock(mutex_);
    const auto found = open_.find(key);
    if (--found->second.users == 0) open_.erase(found);
  }

  // Held while the driver opens or closes, unlike any other lock of ours: what is just being closed must not be opened.
  Mutex mutex_;
  std::map<std::string, Entry> open_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

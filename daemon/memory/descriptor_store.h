// SPDX-License-Identifier: Apache-2.0
// A DescriptorStore keeps descriptors of this process in another process (the service manager or the keeper), so that
// the next daemon receives them after this one has died.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Thread-safe.
class DescriptorStore {
 public:
  static constexpr uint64_t kEntryNameBytesMax = 31;

  virtual ~DescriptorStore() = default;

  // `name`: 1 to kEntryNameBytesMax bytes, printable, without a colon. Several entries may have the same name, but one
  // open file is not stored under two names: systemd keeps only the first. Names of an l and hexadecimal digits are
  // lifelines: the holder drops them when the other end has closed.
  struct Entry {
    std::string_view name;
    int fd = -1;  // stays the caller's; the holder gets a duplicate
  };

  // kQueued: the entries are in the holder's queue, which outlives this process. The holder empties it before it starts
  // the next daemon: the keeper, and systemd for the processes that it has started (sd_notify(3)). kHandled: the holder
  // has received them.
  enum class Until : uint8_t { kQueued, kHandled };
  // RESOURCE_EXHAUSTED, STORE_FULL: the number of entries or the bytes of their names would exceed what the next exec
  // can receive; nothing is stored then. UNAVAILABLE: the holder has ended, its queue was full for 100 ms, or with
  // kHandled its queue was full or it did not answer for 5 s. The entries may be stored then, and Remove drops them.
  // Without entries kHandled waits until the holder has handled earlier calls.
  virtual Status Store(std::span<const Entry> entries, Until until = Until::kHandled) = 0;
  // Drops all descriptors of this name. Neither waits for the holder nor blocks.
  virtual void Remove(std::string_view name) = 0;

  enum class Holder : uint8_t { kServiceManager, kKeeper };
  struct Usage {
    uint64_t entries = 0;
    uint64_t entries_max = 0;
    uint64_t name_bytes = 0;  // with one separator for each name
    uint64_t name_bytes_max = 0;
    uint64_t refused_total = 0;     // calls of Store that were refused because the store was full
    bool holder_has_ended = false;  // nothing is kept any more; this daemon serves on
    Holder holder = Holder::kServiceManager;
  };
  virtual Usage usage() const = 0;
};

// A descriptor that the previous daemon has stored.
struct StoredDescriptor {
  std::string name;
  UniqueFd fd;
};

// The entries of one name, which leave the store with this object.
class StoreGuard {
 public:
  StoreGuard() = default;
  // The entries are in the store already.
  StoreGuard(DescriptorStore& store, std::string name) : store_(&store), name_(std::move(name)) {}
  StoreGuard(StoreGuard&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), name_(std::move(other.name_)) {}
  StoreGuard& operator=(StoreGuard&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(name_, other.name_);
    return *this;
  }
  StoreGuard(const StoreGuard&) = delete;
  StoreGuard& operator=(const StoreGuard&) = delete;
  ~StoreGuard() {
    if (store_ != nullptr) store_->Remove(name_);
  }

 private:
  DescriptorStore* store_ = nullptr;
  std::string name_;
};

}  // namespace arraybridge::daemon

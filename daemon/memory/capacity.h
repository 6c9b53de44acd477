// SPDX-License-Identifier: Apache-2.0
// A Capacity is the number of bytes of one kind of memory that may be used, and the number that is in use. Bytes are
// reserved before they are touched, because a cgroup answers an excess with SIGKILL. A Reservation is the receipt.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe.
class Capacity {
 public:
  Capacity(std::string what, uint64_t bytes) : what_(std::move(what)), bytes_(bytes) {}

  Status Reserve(uint64_t footprint) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (footprint > bytes_ - used_) {
      return ResourceExhausted(what_, ": ", footprint, " bytes do not fit (", used_, " of ", bytes_, " in use)")
          .Because("DEVICE_FULL")
          .With("wanted_bytes", std::to_string(footprint))
          .With("used_bytes", std::to_string(used_))
          .With("capacity_bytes", std::to_string(bytes_));
    }
    used_ += footprint;
    return Ok();
  }
  void Return(uint64_t footprint) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    AB_CHECK(footprint <= used_);
    used_ -= footprint;
  }
  uint64_t used() const AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return used_;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  const std::string what_;
  const uint64_t bytes_;
  mutable Mutex mutex_;
  uint64_t used_ AB_GUARDED_BY(mutex_) = 0;
};

// The receipt for reserved capacity; its destructor returns the bytes. It keeps the Capacity alive, so a block may
// outlive its backend.
class Reservation {
 public:
  Reservation(std::shared_ptr<Capacity> capacity, uint64_t bytes) : capacity_(std::move(capacity)), bytes_(bytes) {}
  Reservation(Reservation&& other) noexcept : capacity_(std::move(other.capacity_)), bytes_(other.bytes_) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() {
    if (capacity_ != nullptr) capacity_->Return(bytes_);
  }

 private:
  std::shared_ptr<Capacity> capacity_;
  const uint64_t bytes_;
};

}  // namespace arraybridge::daemon

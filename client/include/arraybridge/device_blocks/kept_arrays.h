// SPDX-License-Identifier: Apache-2.0
// KeptArrays are arrays in blocks of a GPU that were published in place, while the broker has the blocks. A framework
// with a cache of its own does not tell when an array is gone: it makes the next array in the same memory. So the array
// is kept, and with it the memory, until the last reader has released the share. Then the block may be published again.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <arraybridge/array.h>

#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe. Arrays are let go by Keep and Sweep alone, on their caller's thread and without a lock: what ends an
// array may wait for the framework's own lock, and a thread with that lock may wait for the broker.
class KeptArrays {
 public:
  // REQUIRES: the broker has the range. `arrays`: what lies in it; their owners are kept. Sweeps first.
  void Keep(const std::shared_ptr<Placement::Range>& range, std::vector<View> arrays);
  // The broker has refused the range: the next sweep lets its arrays go.
  void Forget(const Placement::Range& range);
  // Lets the arrays go whose ranges the broker has released.
  void Sweep();
  size_t count() const;

 private:
  struct Entry {
    std::weak_ptr<Placement::Range> range;
    const Placement::Range* identity = nullptr;  // not accessed
    std::vector<View> arrays;
  };

  mutable Mutex mutex_;
  std::vector<Entry> entries_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

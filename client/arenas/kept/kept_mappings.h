// SPDX-License-Identifier: Apache-2.0
// The KeptMappings of an arena are its further mappings, one for each GPU that reads it where it lies. One that no
// array uses is kept for the next array, because to register memory with a driver is slow.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "client/memory/memory_mapper.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class KeptMappings {
 public:
  // The mapping for this GPU; null: there is none.
  std::shared_ptr<Mapping> Find(int32_t ordinal) AB_EXCLUDES(mutex_);
  // The one to use: `made`, or that of another thread which was faster.
  std::shared_ptr<Mapping> Add(int32_t ordinal, const std::shared_ptr<Mapping>& made) AB_EXCLUDES(mutex_);
  // Moves those that no array has used since `before` to `idle`; the caller ends them without a lock.
  void TakeIdle(std::chrono::steady_clock::time_point before, std::vector<std::shared_ptr<Mapping>>& idle)
      AB_EXCLUDES(mutex_);

 private:
  struct Kept {
    std::shared_ptr<Mapping> mapping;
    std::chrono::steady_clock::time_point used;
  };

  Mutex mutex_;
  std::map<int32_t, Kept> kept_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

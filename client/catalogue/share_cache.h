// SPDX-License-Identifier: Apache-2.0
// A cache of the shares that this process acquired lately. The key is the broker's encoded description, so a
// description that is already known costs one comparison, and no parsing, checks or strings.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <arraybridge/share.h>
#include <arraybridge/view.h>

#include "proto/boundary/fence.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

struct KnownArray {
  View view;            // without address and owner
  uint64_t offset = 0;  // from the start of the share
  bool empty = false;   // the array has no address
};

// A share that has been checked. Its bytes may be accessed once its arena is mapped.
struct KnownShare {
  std::string description;  // the broker's encoding; empty: not from an answer of the broker
  Share share;
  Handle handle;  // without its descriptor
  Fence fence;
  std::vector<KnownArray> arrays;
};

// Thread-safe.
class ShareCache {
 public:
  // Null if it is not in the cache.
  std::shared_ptr<const KnownShare> Find(std::string_view description) const;
  // Finds a share by its id, which is unique within one life of the broker.
  std::shared_ptr<const KnownShare> Find(uint64_t share) const;
  // Adds a share, which may displace others.
  void Add(std::shared_ptr<const KnownShare> known);

 private:
  static constexpr size_t kSharesMax = 64;
  static constexpr size_t kIdsMax = 1024;
  static constexpr size_t kShortBytesMax = 4096, kLongMax = 16;  // of longer ones, such as tables', few are kept
  static constexpr size_t kDescriptionBytesMax = 65536;          // a longer description is not kept

  static size_t PlaceOf(std::string_view description) {
    return std::hash<std::string_view>()(description) % kSharesMax;
  }

  mutable Mutex mutex_;
  std::array<std::shared_ptr<const KnownShare>, kSharesMax> known_ AB_GUARDED_BY(mutex_);
  std::array<std::shared_ptr<const KnownShare>, kIdsMax> by_id_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge

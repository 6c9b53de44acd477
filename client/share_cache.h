// The shares that this process acquired lately, known by the very bytes in which the broker describes them: the same
// bytes again cost a comparison, and neither parsing nor checks nor strings.
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
  bool empty = false;   // has no address
};

// Checked: may be pointed into, once its arena is mapped.
struct KnownShare {
  std::string description;  // the broker's bytes; empty: found without an answer of the broker
  Share share;
  Handle handle;  // without its descriptor
  Fence fence;
  std::vector<KnownArray> arrays;
};

// Thread-safe.
class ShareCache {
 public:
  // Null if it is not known (any more).
  std::shared_ptr<const KnownShare> Find(std::string_view description) const;
  // By its id, of which there is one in the broker's life.
  std::shared_ptr<const KnownShare> Find(uint64_t share) const;
  // Takes the place of others.
  void Add(std::shared_ptr<const KnownShare> known);

 private:
  static constexpr size_t kSharesMax = 64;
  static constexpr size_t kIdsMax = 1024;
  static constexpr size_t kDescriptionBytesMax = 4096;  // a longer one is not kept

  static size_t PlaceOf(std::string_view description) {
    return std::hash<std::string_view>()(description) % kSharesMax;
  }

  mutable Mutex mutex_;
  std::array<std::shared_ptr<const KnownShare>, kSharesMax> known_ AB_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const KnownShare>> by_id_ AB_GUARDED_BY(mutex_);  // kIdsMax, from the first on
};

}  // namespace arraybridge

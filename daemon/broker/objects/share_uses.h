// SPDX-License-Identifier: Apache-2.0
// ShareUses adds up the bytes of a namespace's shares by their use: under a name; or, without a name, in channels.
// Bytes that several shares use count once.
#pragma once

#include <cstdint>

#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {

// Not thread-safe.
class ShareUses {
 public:
  uint64_t named_bytes() const { return named_bytes_; }
  uint64_t queued_bytes() const { return queued_bytes_; }
  // `uses`: Share::names or Share::places; one of this share begins or ends. REQUIRES: own_bytes is set.
  void Count(Share& share, uint64_t Share::*uses, bool begins) {
    Share& root = share.root == nullptr ? share : *share.root;
    if (uint64_t* const before = SumOf(root)) *before -= root.own_bytes;
    root.*uses += begins ? 1 : -1;
    if (uint64_t* const after = SumOf(root)) *after += root.own_bytes;
  }

 private:
  uint64_t* SumOf(const Share& root) {
    if (root.names > 0) return &named_bytes_;
    return root.places > 0 ? &queued_bytes_ : nullptr;
  }

  uint64_t named_bytes_ = 0;
  uint64_t queued_bytes_ = 0;
};

}  // namespace arraybridge::daemon

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/kept_ranges.h"

namespace arraybridge::daemon {

void KeptRanges::Restore() {
  for (uint64_t bit = 0; pages_ != nullptr && bit < direct_channel::kReturnBits; ++bit) {
    pages_->Keep(bit, RootOf(bit) != nullptr);
  }
}

void KeptRanges::AddRoot(uint64_t bit, Share* root) {
  roots_.emplace(bit, root);
  pages_->Keep(bit, true);
}

void KeptRanges::RemoveRoot(uint64_t bit, Share* root) {
  roots_.erase({bit, root});
  if (pages_ != nullptr && RootOf(bit) == nullptr) pages_->Keep(bit, false);
}

bool KeptRanges::HasOtherRoot(uint64_t bit, const Share& root) const {
  auto at = roots_.lower_bound({bit, nullptr});
  if (at != roots_.end() && at->second == &root) ++at;
  return at != roots_.end() && at->first == bit;
}

Share* KeptRanges::RootOf(uint64_t bit) const {
  const auto first = roots_.lower_bound({bit, nullptr});
  return first != roots_.end() && first->first == bit ? first->second : nullptr;
}

}  // namespace arraybridge::daemon

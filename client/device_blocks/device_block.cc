// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/device_blocks/device_block.h>

#include <utility>

#include "client/arenas/placement_range.h"

namespace arraybridge {

Result<DeviceBlock> DeviceBlock::Of(Broker& broker, const Wish& wish) {
  const ArraySpec bytes{{1, 8, 1}, "uint8", {static_cast<int64_t>(wish.bytes)}, {}, 0};
  auto placed = broker.Empty({&bytes, 1}, {.device = wish.device, .publish = {}, .timeout = wish.timeout});
  if (!placed.ok()) return placed.status();
  const std::shared_ptr<Placement::Range>& range = placed->range();
  range->handed_out.store(true);  // the framework's work is not known, so its end is waited for
  range->least.store(wish.whole_from);
  range->kept = wish.kept;
  return DeviceBlock(range);
}

std::byte* DeviceBlock::data() const { return range_->data(); }

uint64_t DeviceBlock::size() const { return range_->size; }

bool DeviceBlock::is_unshared() const { return !range_->published.load() && range_.use_count() == 1; }

}  // namespace arraybridge

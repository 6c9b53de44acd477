// SPDX-License-Identifier: Apache-2.0
#include "client/shares/private_range.h"

#include <utility>

namespace arraybridge {

PrivateRange::PrivateRange(std::shared_ptr<const Lease> of, std::unique_ptr<PrivateMapping> range)
    : SessionRelease(of->releases), lease_(std::move(of)), range_(std::move(range)) {}

PrivateRange::~PrivateRange() = default;

void PrivateRange::ReleaseInto(codec::Release& /*release*/) { lease_->arena->ranges.Release(std::move(range_)); }

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A joint range takes the place of ranges that follow one another in an arena, so that their arrays are published as
// one share. Each part keeps it; it is free when the last part, and the broker, have let go.
#pragma once

#include <memory>
#include <vector>

#include "client/arenas/placement_range.h"
#include "client/process/reclaimer.h"

namespace arraybridge {

// One range is its own joint range. Null: there are none, they do not follow one another, GPUs may use them, or another
// thread is publishing one of them. From then on none of the parts is published in place, and neither is the joint
// range but by the caller.
std::shared_ptr<Placement::Range> JointRangeOf(std::vector<std::shared_ptr<Placement::Range>> parts,
                                               Reclaimer& reclaimer);

}  // namespace arraybridge

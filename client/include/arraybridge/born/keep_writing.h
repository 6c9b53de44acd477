// SPDX-License-Identifier: Apache-2.0
// Arrays of a BornHeap that their maker goes on writing after they were published.
#pragma once

#include <arraybridge/array.h>

namespace arraybridge {

// From now on what this process writes to the arrays of the placement is seen by this process alone, through whatever
// view or address: the kernel copies each page when it is first written. So the placement can be published, and be
// written afterwards. Nothing else publishes this memory without a copy before it is freed. True also for a forward.
//
// False: publish a copy, because that is cheaper, or because nothing else is possible. The kernel has to let go of each
// page of the arrays, which takes as long as a copy, unless huge pages map them. Thread-safe.
// REQUIRES: no other thread writes to the arrays meanwhile.
bool KeepWriting(const Placement& placement);

}  // namespace arraybridge

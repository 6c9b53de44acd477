// SPDX-License-Identifier: Apache-2.0
// A WindowMemory shows the slab of one generation of a bundle at addresses that stay the same: in host memory
// (host_window.h), or on a GPU (cuda_window.h). Not thread-safe, except that other threads may read the slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <arraybridge/swap_window.h>
#include <arraybridge/view.h>

#include "client/shares/lease.h"

namespace arraybridge {

// A slab in the arena that its lease keeps.
struct LeasedSlab {
  const View& view;
  std::shared_ptr<const Lease> lease;
  uint64_t offset = 0;  // in the arena
};

class WindowMemory {
 public:
  virtual ~WindowMemory() = default;

  // The first byte of the slab that is shown.
  virtual const std::byte* slab() const = 0;
  // Maps the next slab, or a copy of it, where Move finds it. FAILED_PRECONDITION, OTHER_LAYOUT: it cannot be shown
  // here. REQUIRES: Clear was called since the last Move; the slab has the size of the first.
  virtual Result<SwapWindow::How> Prepare(const LeasedSlab& next) = 0;
  // Shows what was prepared. After an error it shows the same as before.
  virtual Status Move() = 0;
  // Ends the use of what was shown before, and of what is prepared.
  virtual Status Clear() = 0;
};

}  // namespace arraybridge

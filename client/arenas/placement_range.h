// SPDX-License-Identifier: Apache-2.0
// A Placement::Range is the part of a written arena that contains the arrays of one Placement. It lives as long as this
// process has views of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <arraybridge/array.h>

#include "client/arenas/arena.h"
#include "client/arenas/session_release.h"

namespace arraybridge {

struct Placement::Range final : SessionRelease {
  Range(std::shared_ptr<ReleaseQueue> of, std::shared_ptr<WrittenArena> arena, uint64_t offset, uint64_t size);
  // Ends at once if the range was sent on a direct channel: it sets the flag that its sender checks.
  bool ReleaseAtOnce() noexcept override;
  // A published range that was only copied into has a fence, which took over the queued copies. A range whose views
  // were handed out may be in use by frameworks without the client's knowledge: on a GPU by any work, and in pinned
  // memory by copies.
  bool Waits() const override {
    const bool used_by_gpus = arena->device.type != kDeviceCpu || arena->pinned;
    return used_by_gpus && (handed_out || !published || !queued.empty());
  }
  void ReleaseInto(codec::Release& release) override;
  Mapping& Waited() override { return arena->mapping(); }

  std::byte* data() const { return arena->data() + offset; }

  // A queued copy into the range that may not have run yet: its stream, and the object that must live until then.
  struct Queued {
    uintptr_t stream = 0;
    std::shared_ptr<const void> source;
  };
  // Used by the thread that places, and then by the thread that publishes.
  std::vector<Queued> queued;

  std::shared_ptr<WrittenArena> arena;
  const uint64_t offset;
  const uint64_t size;  // whole granules
  std::atomic<bool> published{false};
  std::atomic<bool> handed_out{false};                   // the views of the range
  std::atomic<uint64_t> least{0};                        // arrays of fewer bytes are not published in place
  std::shared_ptr<Range> whole;                          // of which it is a part, which gives the bytes back; or null
  std::shared_ptr<class KeptArrays> kept;                // what keeps its published arrays; null: they may end
  std::atomic<std::atomic<bool>*> left_direct{nullptr};  // set with the last view's end; null: on no direct channel
};

}  // namespace arraybridge

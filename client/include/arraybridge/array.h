// SPDX-License-Identifier: Apache-2.0
// Arrays in broker memory, as a client sees them: a Placement is still being written, an Acquired is leased for
// reading.
#pragma once

#include <memory>
#include <vector>

#include <arraybridge/share.h>
#include <arraybridge/view.h>

namespace arraybridge {

// kShared: the one read-only mapping of the arena. kPrivate: a separate copy-on-write mapping, for frameworks that do
// not support read-only memory; a write changes only the writer's copy and never raises SIGSEGV. A GPU has no
// copy-on-write: there kPrivate equals kShared, and a write faults on the device (with cudaIpcMemHandle it does not
// fault).
enum class MapMode : uint8_t { kShared, kPrivate };

// A range of an arena of this session that is carved and not yet published. The range returns to the carver when the
// Placement and all views of it are destroyed. A copy shares the range.
//
// Or a forward: arrays that lie in a share that this process holds, to be published once more without a copy.
class Placement {
 public:
  // Writable, compact, 256-byte aligned. Each view keeps the range in use. The views of a forward are its arrays, which
  // are only read.
  const std::vector<View>& views() const;

  struct Range;  // client/arenas/placement_range.h
  Placement(std::shared_ptr<Range> range, std::vector<View> views);
  // Null for a forward.
  const std::shared_ptr<Range>& range() const { return range_; }
  struct Forward;  // client/shares/forward.h
  Placement(std::shared_ptr<const Forward> forward, std::vector<View> views);
  // Null for a range of its own.
  const std::shared_ptr<const Forward>& forward() const { return forward_; }
  // The same views, without a reference to the range, for callers that only read the descriptions.
  const std::vector<View>& described() const { return views_; }

 private:
  std::shared_ptr<Range> range_;
  std::shared_ptr<const Forward> forward_;
  std::vector<View> views_;
};

// The arrays of one leased share. On a GPU the bytes may not be complete yet (View::fence): copies wait by themselves;
// a consumer that reads them otherwise first orders its stream (OrderAfterProducer) or waits (WaitForProducer). The
// lease ends when this object and all its views are destroyed, on any thread: the last destructor only enqueues the
// release for a reclaimer thread. The bytes stay readable after the daemon ends.
struct Acquired {
  std::shared_ptr<const Share> share;  // never null
  std::vector<View> views;             // one for each of share->arrays; read-only if kShared, copy-on-write if kPrivate
  Sent sent{};                         // of a share that was received from a channel
};

}  // namespace arraybridge

// Arrays in broker memory, seen from a client: a Placement is still being written, an Acquired is leased for reading.
#pragma once

#include <memory>
#include <vector>

#include <arraybridge/share.h>
#include <arraybridge/view.h>

namespace arraybridge {

// kShared: the arena's one read-only mapping. kPrivate: a copy-on-write mapping of its own, for frameworks that do not
// know read-only memory: a write stays with the writer and never ends in SIGSEGV. A GPU has no copy-on-write: there
// kPrivate is kShared, and a write faults on the device (with cudaIpcMemHandle, it does not even do that).
enum class MapMode : uint8_t { kShared, kPrivate };

// Bytes of an arena of this session, carved and not yet published. Dropping it gives the range back to the carver,
// once the views handed out are gone too. Copying shares it.
class Placement {
 public:
  // Writable, compact, 256-byte aligned; each keeps the range from being carved again.
  const std::vector<View>& views() const;

  struct Range;  // client/arena.h
  Placement(std::shared_ptr<Range> range, std::vector<View> views);
  const std::shared_ptr<Range>& range() const { return range_; }
  // The views, for who only looks at what they say.
  const std::vector<View>& described() const { return views_; }

 private:
  std::shared_ptr<Range> range_;
  std::vector<View> views_;
};

// The arrays of one leased share. On a GPU their bytes may be on their way yet (View::fence): copies wait by
// themselves, whoever reads by other means orders its stream first (OrderAfterProducer) or waits. The lease ends when
// this and all views handed out are gone, wherever that happens: the last drop only enqueues, a reaper releases. Bytes
// stay readable when the daemon is gone.
struct Acquired {
  std::shared_ptr<const Share> share;  // never null
  std::vector<View> views;  // one for each of share->arrays; read-only if mapped shared, copy-on-write if private
};

}  // namespace arraybridge

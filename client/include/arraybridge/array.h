// Arrays in broker memory, seen from a client: a Placement is still being written, an Acquired is leased for reading.
#pragma once

#include <memory>
#include <vector>

#include <arraybridge/share.h>
#include <arraybridge/view.h>

namespace arraybridge {

// Bytes of an arena of this session, carved and not yet published. Dropping it gives the range back to the carver,
// once the views handed out are gone too. Copying shares it.
class Placement {
 public:
  // Writable, compact, 256-byte aligned; each keeps the range from being carved again.
  const std::vector<View>& views() const { return views_; }

  struct Range;  // client/arena.h
  Placement(std::shared_ptr<Range> range, std::vector<View> views);
  const std::shared_ptr<Range>& range() const { return range_; }

 private:
  std::shared_ptr<Range> range_;
  std::vector<View> views_;
};

// The arrays of one leased share. The lease ends when this and all views handed out are gone, wherever that happens:
// the last drop only enqueues, a reaper releases. Bytes stay readable when the daemon is gone.
struct Acquired {
  std::shared_ptr<const Share> share;  // never null
  std::vector<View> views;  // one for each of share->arrays; read-only if mapped shared, copy-on-write if private
};

}  // namespace arraybridge

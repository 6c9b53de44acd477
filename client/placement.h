// Placements: room for arrays in the arenas of a session, and the way from a placement to a share.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/broker.h>

#include "client/connection.h"
#include "client/session.h"

namespace arraybridge {

class WrittenArena;

// Room for compact arrays of these types and shapes in one range on `device`, a local one, out of what is there or out
// of a new arena; address, strides, device and owner are filled in. Waits for room until the deadline, then
// RESOURCE_EXHAUSTED. A share that Publish, with these `options`, would refuse for a limit is refused before.
Result<Placement> MakeRoom(Connection& connection, std::string_view ns, const Device& device, std::vector<View> arrays,
                           bool own, const Broker::PublishOptions& options, Deadline deadline);

// Bytes that arrays take in a range of their own: whole granules. INVALID_ARGUMENT: none, or too many.
Result<uint64_t> RoomOfAll(std::span<const View> arrays);

// What a view says of its bytes. `start`: of the range in which they lie.
codec::PublishedArray SpecOf(const View& view, const std::byte* start);

// What is asked for these bytes of an arena; namespace and arrays are the caller's to add.
codec::Publish RequestFor(const Session& session, const Broker::PublishOptions& options, const WrittenArena& arena,
                          uint64_t offset, uint64_t size);

// Whether it may go as an unwaited request: it is a new name.
bool IsForQueue(const Session& session, std::string_view ns, const Broker::PublishOptions& options);

// What is published, in the words of who asked for it.
Share ShareOf(codec::Published published, std::string_view ns, codec::Publish request, const WrittenArena& arena,
              const Session& session);

// Remembers what was asked for, if `why` says that the broker may yet publish it.
void Expect(Session& session, const Status& why, std::string_view ns, codec::Publish request,
            const WrittenArena& arena);

// Where a share goes that gets no name: an end of a channel, and how long the broker waits for room there.
struct IntoChannel {
  uint64_t channel = 0;  // 0: it gets a name
  uint64_t timeout_ms = 0;
};
Result<Share> PublishPlacement(Session& session, std::string_view ns, const Placement& placement,
                               const Broker::PublishOptions& options, Deadline deadline, const IntoChannel& into = {});

// NOT_FOUND: not all of them lie, aligned and compact, in one unpublished placement of the session.
Result<Placement> FindPlacement(Session& session, std::span<const View> views);

}  // namespace arraybridge

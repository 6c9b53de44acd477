// SPDX-License-Identifier: Apache-2.0
// Placements: room for arrays in the arenas of a session, and their publication as shares.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/broker.h>

#include "client/session/connection.h"
#include "client/session/session.h"
#include "proto/boundary/byte_range.h"

namespace arraybridge {

// Deadlines from their first use on: a call that finds room in an arena of its session does not read the clock.
class PlaceDeadlines {
 public:
  // REQUIRES: memory <= calls.
  PlaceDeadlines(std::chrono::milliseconds calls, std::chrono::milliseconds memory) : calls_(calls), memory_(memory) {}
  Deadline calls() { return begun() + calls_; }
  Deadline memory() { return begun() + memory_; }  // to wait for memory

 private:
  Deadline begun() {
    if (!begun_) begun_ = std::chrono::steady_clock::now();
    return *begun_;
  }

  const std::chrono::milliseconds calls_;
  const std::chrono::milliseconds memory_;
  std::optional<Deadline> begun_;
};
// The properties of the arena of a range, as Broker::PlaceOptions has them.
struct ArenaWish {
  bool own = false;
  bool pinned = false;
};
// Makes room for compact arrays of these types and shapes in one range on `device`, which must be local. Takes it from
// an existing arena or from a new one. Fills in address, strides, device and owner. Waits until `until.memory()`,
// then RESOURCE_EXHAUSTED. If Publish with `options` would exceed a limit of the broker, it fails here.
Result<Placement> Allocate(Connection& connection, std::string_view ns, const Device& device, std::vector<View> arrays,
                           const ArenaWish& wish, const Broker::PublishOptions& options, PlaceDeadlines until);

// Sends one Allocate for an arena. Returns nothing if the broker returned ranges instead.
Result<std::optional<Handle>> AskForArena(Session& session, std::string_view ns, const Device& device, uint64_t size,
                                          uint64_t timeout_ms, Deadline deadline);

// The bytes that the arrays occupy in a range of their own, in whole granules. INVALID_ARGUMENT: no arrays, or too many
// bytes.
Result<uint64_t> RangeBytesOf(std::span<const View> arrays);

// Where the arrays of a range lie in it, in bytes from its start: each as its address says, or copies one behind the
// other. Of is called once for each, in their order.
class Offsets {
 public:
  // `start`: the address of the range; null: copies.
  explicit Offsets(const std::byte* start) : start_(start) {}
  // 0 if the array has no elements.
  uint64_t Of(const View& array);

 private:
  const std::byte* const start_;
  uint64_t next_ = 0;
};
// The description of an array at this offset in its range.
codec::PublishedArray SpecOf(const View& view, uint64_t offset);
std::vector<codec::PublishedArray> SpecsOf(std::span<const View> views, Offsets offsets);
// array == SpecOf(view, offset); does not allocate.
bool IsSpecOf(const codec::PublishedArray& array, const View& view, uint64_t offset);

// The destination of an unnamed share: the sending end of a channel, how long the broker waits for room there, and the
// last notice that the caller has seen.
struct IntoChannel {
  uint64_t channel = 0;  // 0: the share gets a name
  uint64_t timeout_ms = 0;
  uint64_t seen_notice = 0;
};
// A Publish request for this range of an arena. The caller adds the namespace and the arrays.
codec::Publish RequestFor(const Session& session, const Broker::PublishOptions& options, uint64_t arena,
                          uint64_t generation, const ByteRange& range, const IntoChannel& into = {});

// True if the publish may go as an unwaited request: it is not waited for, and its name is new.
bool IsForQueue(const Session& session, std::string_view ns, const Broker::PublishOptions& options);

// The published share, built from the request and the answer.
Share ShareOf(const wire::PublishResponse& published, std::string_view ns, codec::Publish request, const Device& device,
              HandleKind kind, const Session& session);

// If `why` says that the broker may still publish the share, remembers the request.
void Expect(Session& session, const Status& why, std::string_view ns, codec::Publish request, const Device& device,
            HandleKind kind);

// REQUIRES: the placement has a range of its own; see PublishForward.
Result<Share> PublishPlacement(Session& session, std::string_view ns, const Placement& placement,
                               const Broker::PublishOptions& options, Deadline deadline, const IntoChannel& into = {});

// Finds the placement that contains these views; `joins`: or makes one of several that follow one another, which is
// published next. Nothing: not all of them lie, aligned and compact, in unpublished placements of the session.
std::optional<Placement> FindPlacement(Session& session, std::span<const View> views, bool joins);

}  // namespace arraybridge

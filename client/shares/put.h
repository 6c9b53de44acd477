// SPDX-License-Identifier: Apache-2.0
// A put in one step: carve, fill and publish, without a Placement that a caller could keep.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string_view>

#include <arraybridge/broker.h>

#include "client/session/session.h"

namespace arraybridge {

// A range that was carved for the broker. The destructor frees it unless a request that publishes it, or the consumer
// of a direct channel, may have it.
class Unpublished {
 public:
  Unpublished(Session& session, const WrittenArenas::Carving& carving)
      : session_(session), arena_(carving.arena->id), offset_(carving.offset) {}
  ~Unpublished() {
    if (!kept_) session_.written().ReleaseForBroker(arena_, offset_);
  }
  Unpublished(const Unpublished&) = delete;
  Unpublished& operator=(const Unpublished&) = delete;
  void Keep() { kept_ = true; }

 private:
  Session& session_;
  const uint64_t arena_;
  const uint64_t offset_;
  bool kept_ = false;
};

bool AllOnHost(std::span<const View> views);

// Copies host arrays into a range, where Offsets says. REQUIRES: it has RangeBytesOf(sources) bytes.
void CopyAll(std::span<const View> sources, std::byte* range);

// Copies host arrays and publishes them: through the session queue if the publish is not waited for, otherwise by one
// request. The timeout of that request starts after the copy. Returns nothing if the put was not done; the caller then
// uses Place and Publish, which also report any error in the arguments.
std::optional<Result<Share>> PutInOneStep(Session& session, std::string_view ns, std::span<const View> sources,
                                          const Broker::PublishOptions& options, std::chrono::milliseconds timeout);

}  // namespace arraybridge

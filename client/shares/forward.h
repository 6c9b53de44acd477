// SPDX-License-Identifier: Apache-2.0
// A Forward is a part of a share that this process holds and that is published once more, without a copy. The broker
// keeps the bytes for both shares.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <arraybridge/array.h>
#include <arraybridge/broker.h>

#include "client/arenas/arena_cache.h"
#include "client/session/session.h"
#include "client/shares/placement.h"
#include "client/wire/codec.h"

namespace arraybridge {

// The views of its Placement keep the share.
struct Placement::Forward {
  std::shared_ptr<ReleaseQueue> releases;  // of the session that holds the share
  std::shared_ptr<ReadArena> arena;
  uint64_t offset = 0;  // of the part, in the arena
  uint64_t size = 0;
  wire::Source source;
  std::shared_ptr<void> entry;  // keeps the entry of a direct channel, if the source is one
};

// Finds the share of host memory in which all these arrays lie. Nothing: there is none. `why` is set then, if some lie
// in shares: LAYOUT: an array is not compact and aligned. WRITTEN: this process wrote it since it mapped the share
// copy-on-write. APART: the arrays do not lie in one share.
std::optional<Placement> FindForward(Session& session, std::span<const View> views, std::string_view* why = nullptr);

// FAILED_PRECONDITION, NOT_FORWARDED: publish a copy. REQUIRES: the placement is a forward.
Result<Share> PublishForward(Session& session, std::string_view ns, const Placement& placement,
                             const Broker::PublishOptions& options, Deadline deadline, const IntoChannel& into = {});

// Whether the caller must publish a copy instead.
inline bool IsNotForwarded(const Status& refusal) { return refusal.reason() == "NOT_FORWARDED"; }

}  // namespace arraybridge

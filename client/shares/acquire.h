// SPDX-License-Identifier: Apache-2.0
// Acquire turns the shares that a broker grants into arrays of this process. It checks every answer before it maps
// memory or points into it, and gives back the leases of shares that it rejects.
//
// TryAcquire answers at once, or returns nothing if a request is needed. Acquire sends a request.
#pragma once

#include <optional>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/broker.h>

#include "client/direct_channels/direct_consumer.h"
#include "client/session/session.h"

namespace arraybridge {

// The time limits of an Acquire.
struct AcquireWaits {
  uint64_t timeout_ms = 0;        // how long the broker waits for missing names
  uint64_t fence_timeout_ms = 0;  // how long it waits for unfinished bytes; 0: the broker's default
  Deadline deadline;              // for the broker's answer; later than both
};

// Returns nothing if a request is needed, for whatever reason. REQUIRES: `ref` is a name.
std::optional<Acquired> TryAcquire(Session& session, std::string_view ns, const ShareRef& ref, MapMode mode);

// Acquires all shares or none. REQUIRES: `refs` does not exceed the broker's limit for one request.
Result<std::vector<Acquired>> Acquire(Session& session, std::string_view ns, std::span<const ShareRef> refs,
                                      MapMode mode, const AcquireWaits& waits, std::string_view note = {});

// Converts the answer to an Acquire or a Receive into arrays of this process. `count`: the number of shares requested.
Result<std::vector<Acquired>> TakeGranted(Session& session, Answer answer, size_t count, MapMode mode,
                                          Deadline deadline);

// Converts an entry taken from a direct channel into arrays of this process. INVALID_ARGUMENT: the producer's
// description is invalid. `arena`: the arena that contains the bytes.
Result<Acquired> TakeSent(Session& session, const std::shared_ptr<DirectConsumer>& consumer,
                          const direct_channel::Entry& entry, std::shared_ptr<ReadArena> arena, std::string_view ns,
                          std::string_view channel, MapMode mode);
// Maps the arena that contains the entry's bytes. `receiving`: the end of the channel that took the entry.
Status MapSent(Session& session, const direct_channel::Header& entry, uint64_t receiving, Deadline deadline);

// Gives back the leases that a late answer granted, after its caller has given up.
void GiveBackLate(Session& session, const Result<Answer>& answer);

}  // namespace arraybridge

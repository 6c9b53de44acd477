// Acquiring: from what a broker grants to arrays of this process. Everything that comes in is checked before it is
// mapped or pointed into; leases of what is refused go back.
#pragma once

#include <optional>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/broker.h>

#include "client/direct_consumer.h"
#include "client/session.h"

namespace arraybridge {

// How long an Acquire may take.
struct AcquireWaits {
  uint64_t timeout_ms = 0;        // for names that are not there
  uint64_t fence_timeout_ms = 0;  // for bytes that are being made; 0: as long as the broker likes
  Deadline deadline;              // for the broker's answer: after both
};

Result<std::vector<Acquired>> AcquireShares(Session& session, std::string_view ns, std::span<const ShareRef> refs,
                                            MapMode mode, const AcquireWaits& waits, std::string_view note = {});

// What an Acquire or a Receive granted, as arrays of this process. `count`: of shares that were asked for.
Result<std::vector<Acquired>> TakeGranted(Session& session, Answer answer, size_t count, MapMode mode,
                                          Deadline deadline);

// An entry that was taken from a direct channel, as arrays of this process. INVALID_ARGUMENT: its producer described no
// arrays that can be. `arena`: the one in which its range lies.
Result<Acquired> TakeSent(Session& session, const std::shared_ptr<DirectConsumer>& consumer,
                          const direct_channel::Entry& entry, std::shared_ptr<ReadArena> arena, std::string_view ns,
                          std::string_view channel, MapMode mode);
// Maps the arena in which its range lies. `receiving`: the consuming end.
Status MapSent(Session& session, const direct_channel::Header& entry, uint64_t receiving, Deadline deadline);

// Gives back what an answer granted that nobody waits for any more.
void GiveBackLate(Session& session, const Result<Answer>& answer);

// Without a call: nothing if the share has to be asked for, whatever the reason. `generation`: as in a ShareRef.
std::optional<Acquired> AcquireHeld(Session& session, std::string_view ns, std::string_view name, uint64_t generation,
                                    MapMode mode);

}  // namespace arraybridge

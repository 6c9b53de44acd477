// SPDX-License-Identifier: Apache-2.0
// A disk arena stands for the bytes of one share that are in a file. It has a size, and no memory, handle or writer.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/records.h"
#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/share.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// `generation`: random.
std::unique_ptr<Arena> MakeDiskArena(ArenaId id, uint64_t generation, Namespace& ns, uint64_t size);

// Whether the bytes of the share may be moved to a file now. FAILED_PRECONDITION: SHARE_IN_USE, it may be later;
// NOT_MOVABLE, it is of a kind that stays where it is;
// PINNED.
Status CheckMovable(const Share& share);

// Why an acquire gets no lease on this share in a file. NOT_FOUND, SHARE_AWAY: once its bytes are in memory, it gets
// one. DATA_LOSS, SHARE_LOST: the file was damaged.
Status IsAway(const Share& share);

}  // namespace arraybridge::daemon

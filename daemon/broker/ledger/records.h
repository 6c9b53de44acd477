// SPDX-License-Identifier: Apache-2.0
// The fixed parts of the journal's records, in the layout of RecordFile::kMajor. The texts follow, in the order in
// which their lengths stand, and then what only some records of the kind have. A minor version adds kinds, and fields
// and texts at the end of the content; a reader that finds fewer bytes reads zeros.
//
// Times are of CLOCK_MONOTONIC, in nanoseconds; 0: none. A record that names a session that is gone has its number all
// the same.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace arraybridge::daemon::record {

enum Kind : uint8_t {
  kArena = 1,
  kShare,
  kSession,
  kLease,
  kCatalogue,
  kHazardPage,
  kQueue,
  kQuota,
  kReturned,
  kChannel,
  kChannelEnd,
  kDirectChannel,
  kTicket
  // 14 is reserved: a peer over TCP, in 0.1.
};

// The words of the journal.
enum Word : size_t {
  kLives,  // daemons that have used this journal
  kBegan,  // the start of the first one, wall clock in seconds
  kBrokerIdLow,
  kBrokerIdHigh,
  kLastShare,
  kLastGeneration,
  kLastArena,
  kLastSession,
  kLastLease,
  kLastChannel,
  kLastChannelEnd,
  kLastDirectChannel,
  kLastPage,    // numbers in the names of stored pages
  kLostShares,  // of all lives
  // 14 is reserved: the last peer over TCP, in 0.1.
};

struct Arena {
  uint64_t id;
  uint64_t generation;
  uint64_t size;
  uint64_t maker;  // session
  uint64_t request;
  uint32_t maker_uid;
  uint32_t ns_uid;
  int32_t device_kind;
  int32_t device_id;
  uint8_t kind;
  uint8_t sealed;    // 0: not yet; 1 + Immutability
  uint8_t writable;  // by its maker
  uint8_t reserved;
  uint16_t ns_bytes;
  uint16_t uuid_bytes;
};

enum ShareFlag : uint16_t { kUnnamed = 1, kWithdrawn = 2, kPending = 4, kQueued = 8, kKept = 16 };

struct Share {
  uint64_t id;
  uint64_t generation;
  uint64_t arena;
  uint64_t offset;
  uint64_t size;
  uint64_t maker;  // session
  uint64_t maker_process_id;
  uint64_t request;
  uint64_t root;  // share
  int64_t born;
  int64_t expires;
  int64_t orphan_until;
  uint32_t maker_uid;
  uint16_t flags;
  uint16_t name_bytes;
  uint32_t description_bytes;
  uint16_t note_bytes;
  uint16_t client_bytes;
};

// Behind the texts of a share that was sent into a channel, or that forwards an entry of a direct channel. With kQueued
// the share waits in the channel, unless a lease has received it, or all receivers of a broadcast have passed it, or
// the channel's queue was taken since.
struct Sent {
  uint64_t channel;
  uint64_t sending;  // the sender's end
  uint64_t sequence;
  uint64_t stream;
  uint64_t time_ns;  // CLOCK_BOOTTIME
  uint64_t
      direct_channel;  // its number, of the entry; 0: the share forwards no entry of one that the sender still reads
  uint64_t bit;        // the entry's return bit
};

struct Session {
  uint64_t id;
  int64_t born;
  std::array<uint8_t, 16> token;
  uint32_t uid;
  uint32_t gid;
  uint64_t process_id;
  uint32_t kinds;  // bits, by HandleKind
  uint16_t client_bytes;
  uint16_t refused_bytes;
  uint16_t events_bytes;
  uint16_t secret_bytes;
  uint32_t gpus_bytes;  // each with a '\n' at its end
};

// Behind the texts of a session that came by another door than the lifelines'.
struct ByDoor {
  uint64_t door;
};

struct Ticket {
  std::array<uint8_t, 16> token;
  uint64_t session;
  uint64_t arena;
  int64_t deadline;
  uint64_t access;
};

struct Lease {
  uint64_t id;
  uint64_t session;
  uint64_t share;
  uint64_t request;
};

// Behind the lease of a share that the end of a channel has received.
struct Received {
  uint64_t receiver;  // the end
};

struct Returned {
  uint64_t session;
  uint64_t arena;
  uint64_t offset;
  uint64_t size;
};

// A catalogue, a hazard page or the queue of a session. `page` is in the names of the stored descriptors.
struct Page {
  uint64_t page;
  uint64_t session;
  uint32_t ns_uid;
  uint16_t ns_bytes;
  uint16_t has_owner;  // of a queue: ns_uid is set
};

struct Quota {
  uint64_t bytes;
  uint32_t ns_uid;
  uint16_t ns_bytes;
  uint16_t reserved;
};

enum ChannelFlag : uint8_t {
  kHadReceivers = 1,
  kBegun = 2,
  kDrained = 4,
  kMissing = 8,
  kDropOldest = 16,
  kStatesOnSlow = 32,  // an end has stated whether it drops the oldest
  kStatesReplay = 64
};

// The shares of the channel and its ends say what happened since the record was written.
struct Channel {
  uint64_t id;
  uint64_t capacity;
  uint64_t replay;
  uint64_t stream;
  uint64_t sent;   // at least this sequence
  uint64_t taken;  // the shares up to this sequence wait no longer
  uint64_t notified_receiver;
  uint64_t closed;             // the end that was closed last
  uint64_t dropped;            // in total
  uint64_t received;           // in total by ends that were closed
  uint64_t last_to_receivers;  // notices
  uint64_t last_to_senders;
  int64_t lingers_until;
  uint32_t ns_uid;
  uint8_t mode;
  uint8_t flags;
  uint16_t ns_bytes;
  uint16_t name_bytes;
  uint16_t reserved;
  uint32_t notices_bytes;  // each a Notice, and the client's name
  // Behind the texts: for each notice an int64_t, when its end ended.
};

struct Notice {
  uint64_t number;
  uint64_t after;
  uint64_t stream;
  uint64_t process_id;
  uint64_t shares;
  uint8_t how;
  uint8_t missing;
  uint8_t to_senders;
  uint8_t reserved;
  uint32_t client_bytes;
};

// Written anew with each share that the end sends or receives by a call. A Sender or a Receiver follows.
struct ChannelEnd {
  uint64_t id;
  uint64_t channel;
  uint64_t session;
  uint64_t request;  // that opened it
  uint64_t seen;     // the last notice that is not for it
  uint64_t role;
  uint64_t shares;
  uint64_t counted;  // the last share, by its sequence, or the last lease that `shares` counts
};
struct Sender {
  std::array<uint64_t, 4> requests;  // its last ones
};
struct Receiver {
  uint64_t received;
  uint64_t passed;
  uint64_t dropped;
  uint64_t late;
};

// The pages say whether it is open, and whether it has ended.
struct DirectChannel {
  uint64_t number;
  uint64_t channel;
  uint64_t sender;  // session
  uint64_t sending;
  uint64_t receiver;
  uint64_t receiving;
  uint64_t capacity;
  int64_t born;
  uint32_t sender_uid;
  uint32_t receiver_uid;
  uint16_t ns_bytes;
  std::array<uint8_t, 6> reserved;  // of what the sender sent on, before layout 6 of direct channels
};

}  // namespace arraybridge::daemon::record

// SPDX-License-Identifier: Apache-2.0
// A Snapshot holds the broker's numbers and names. It is taken under the lock and read without it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/channel_terms.h"
#include "daemon/broker/ledger/ids.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/layouts/born/figures.h"

namespace arraybridge::daemon {

// No session has kAdmin.
enum class Door : uint8_t { kLifeline, kGrpc, kAdmin };

// The owner of a namespace that several users share. The kernel assigns this number to no user.
inline constexpr uint32_t kSharedByUsers = UINT32_MAX;

// How a share came into its channel.
struct SentFacts {
  uint64_t sequence = 0;
  uint64_t stream = 0;
  uint64_t time_ns = 0;  // CLOCK_BOOTTIME
  uint64_t process_id = 0;
  std::shared_ptr<const std::string> client;  // may be null
};

// Properties of a share that do not change after it is published. The broker and all answers about the share use the
// same object.
struct ShareFacts {
  ShareId id{};
  std::string ns;
  std::string name;
  uint64_t generation = 0;
  std::string description;  // from the maker; opaque to the broker
  bool unnamed = false;
  std::unique_ptr<const SentFacts> sent;  // null: it was not sent into a channel
};

struct DeviceFacts {
  Device device;
  std::vector<HandleKind> kinds;
  uint64_t capacity_bytes = 0;
  uint64_t allocated_bytes = 0;
  uint64_t cached_bytes = 0;
  struct Refused {
    HandleKind kind{};
    std::string why;
    RefusalCause cause{};
  };
  std::vector<Refused> refused;
  bool out_of_service = false;     // the entry of `refused` with RefusalCause::kFailed says why
  uint64_t quarantined_bytes = 0;  // of blocks without a name that a process may still have mapped
};

// Upper bounds of the buckets, a factor of about 3 apart. A longer duration is in no bucket.
inline constexpr std::array<std::chrono::nanoseconds, 15> kDurationBuckets = {
    std::chrono::microseconds(1),    std::chrono::microseconds(3),    std::chrono::microseconds(10),
    std::chrono::microseconds(30),   std::chrono::microseconds(100),  std::chrono::microseconds(300),
    std::chrono::milliseconds(1),    std::chrono::milliseconds(3),    std::chrono::milliseconds(10),
    std::chrono::milliseconds(30),   std::chrono::milliseconds(100),  std::chrono::milliseconds(300),
    std::chrono::milliseconds(1000), std::chrono::milliseconds(3000), std::chrono::milliseconds(10000)};

// A histogram of durations.
struct Durations {
  std::array<uint64_t, kDurationBuckets.size()> within{};  // cumulative
  uint64_t count = 0;
  std::chrono::nanoseconds sum{};
};

// Why the last name or reader of an arena went. kRelease: its writer or a reader released it. kAdmin: an administrator
// withdrew the share, or changed the rights of its namespace.
enum class FreeCause : uint8_t { kRelease, kSessionEnd, kWithdraw, kAdmin, kLast = kAdmin };

// Arenas of one memory kind of one device. Bytes are footprints.
struct MemoryFlow {
  Device device;
  HandleKind kind{};
  uint64_t allocations = 0;  // current arenas, dying ones included
  uint64_t allocations_total = 0;
  uint64_t allocated_bytes_total = 0;
  std::array<uint64_t, static_cast<size_t>(FreeCause::kLast) + 1> freed_bytes_total{};  // by FreeCause
  Durations took;  // times of the device's allocations
};

struct ListFilter {
  bool everybody = false;  // an administrator asks: rows of all users
  std::string ns;          // empty: all
  std::string name_prefix;
  bool ends = false;     // channels with their ends
  SessionId session{};   // 0: any
  size_t page_size = 0;  // REQUIRES: > 0
  // Size limit of the page's rows as encoded. The first row is included whatever its size.
  uint64_t bytes_max = UINT64_MAX;
  std::string page_token;  // empty: from the start. INVALID_ARGUMENT: not a token of this broker
};

// Rows of a list, and the token of the page behind them; empty: there is none.
template <class Row>
struct RowPage {
  std::vector<Row> rows;
  std::string next;
};

struct ShareRow {
  std::shared_ptr<const ShareFacts> facts;
  Handle handle;  // without a descriptor
  Immutability immutability{};
  SessionId maker{};
  uint64_t maker_process_id = 0;
  uint64_t leases = 0;
  std::chrono::milliseconds age{};
  bool fence_done = true;
  std::optional<std::chrono::milliseconds> expires_in;
  std::optional<uint32_t> maker_uid;  // nullopt if the asker may not know
  bool goes_with_maker = false;       // its namespace withdraws it when its maker's session ends
  ShareId forward_of{};               // the share whose bytes it uses; 0: its own
};
using SharePage = RowPage<ShareRow>;

struct SessionRow {
  SessionId session{};
  std::string client;
  uint32_t uid = 0;
  uint64_t process_id = 0;
  Door door{};
  std::chrono::milliseconds age{};
  uint64_t leases = 0;
  uint64_t arenas = 0;
  uint64_t arena_bytes = 0;
  std::vector<HandleKind> kinds;  // kinds of handle that the session can open and may be offered
  bool awaited = false;           // it waits for its client
  born::Figures born;
};
using SessionPage = RowPage<SessionRow>;

struct LeaseRow {
  LeaseId lease{};
  SessionId session{};
  std::shared_ptr<const ShareFacts> facts;
  uint64_t size = 0;
  uint32_t uid = 0;  // of the session
  uint64_t process_id = 0;
  Device device;
};
using LeasePage = RowPage<LeaseRow>;

struct NamespaceRow {
  std::string ns;
  uint32_t uid = 0;  // kSharedByUsers
  uint64_t quota_bytes = 0;
  uint64_t charged_bytes = 0;
  uint64_t shares = 0;
  uint64_t share_bytes = 0;
  uint64_t named_bytes = 0;
  uint64_t queued_bytes = 0;
  uint64_t unowned_bytes = 0;
  // Of shares without a name that processes still read.
  uint64_t held_bytes() const { return share_bytes - std::min(share_bytes, named_bytes + queued_bytes); }
  // In arenas, but of no share: free for the next arrays of their process, in a direct channel, or being freed.
  uint64_t unused_bytes() const { return charged_bytes - std::min(charged_bytes, share_bytes); }
  bool read_only = false;  // for the asker
  std::chrono::milliseconds share_lifetime{};
  std::chrono::milliseconds orphan_grace{};
  bool withdraws_on_exit = false;
};
// A namespace and what has most of its bytes.
struct NamespaceUse {
  struct Part {
    std::string name;
    uint64_t bytes = 0;
    bool is_channel = false;  // what waits in it without a name; otherwise a share
  };
  static constexpr size_t kLargest = 3;

  NamespaceRow row;
  std::vector<Part> largest;  // at most kLargest, the largest first

  void Add(std::string_view name, uint64_t bytes, bool is_channel) {
    const auto at = std::ranges::find_if(largest, [bytes](const Part& other) { return other.bytes < bytes; });
    if (bytes == 0 || at - largest.begin() >= static_cast<std::ptrdiff_t>(kLargest)) return;
    largest.insert(at, {std::string(name), bytes, is_channel});
    if (largest.size() > kLargest) largest.pop_back();
  }
};

using NamespacePage = RowPage<NamespaceRow>;

struct ChannelRow {
  std::string ns;
  std::string name;
  uint32_t uid = 0;  // owner of the namespace; kSharedByUsers
  uint64_t capacity = 0;
  uint64_t queued = 0;  // waiting shares
  uint64_t queued_bytes = 0;
  uint64_t senders = 0;
  uint64_t receivers = 0;
  bool direct = false;                 // both ends use a direct channel; its entries are not counted
  uint64_t stream = 0;                 // the number of the stream that runs, or of the last one
  std::chrono::milliseconds oldest{};  // since the first of those that wait for a receiver was sent
  bool full = false;                   // a sender would have to wait
  ChannelTerms terms;
  ChannelTotals totals;
  struct End {
    ChannelRole role{};
    SessionId session{};
    uint64_t process_id = 0;                    // 0: not for the caller to know, and no client
    std::shared_ptr<const std::string> client;  // may be null
    uint64_t shares = 0;
    uint64_t waiting = 0;
    uint64_t dropped = 0;
    std::chrono::milliseconds closed{};  // since it was closed; zero: it is open
  };
  std::vector<End> ends;  // if the filter asks for them
};
using ChannelPage = RowPage<ChannelRow>;

struct Snapshot {
  ChannelTotals channel_totals;
  uint64_t unread_shares = 0;    // with a name, and not read by a call yet
  uint64_t expiring_shares = 0;  // with a name and a lifetime
  uint64_t sessions = 0;
  uint64_t leases = 0;
  uint64_t shares = 0;
  uint64_t withdrawn_shares = 0;
  uint64_t arenas = 0;
  uint64_t charged_bytes = 0;
  uint64_t tickets = 0;
  uint64_t dying_arenas = 0;
  uint64_t hazard_slots = 0;  // hazard slots in use
  uint64_t pinned_bytes = 0;  // of withdrawn shares that only hazard slots keep
  uint64_t channels = 0;
  uint64_t queued_shares = 0;  // sent and not received yet
  uint64_t sessions_total = 0;
  uint64_t publishes_total = 0;
  uint64_t forwards_total = 0;  // of these publishes: without a copy of bytes that lay in a share, or came in a channel
  uint64_t acquires_total = 0;
  uint64_t withdrawals_total = 0;  // names taken away by sessions, administrators and the broker
  uint64_t tickets_redeemed_total = 0;
  uint64_t tickets_expired_total = 0;  // or dropped with their session
  // redemptions refused: the ticket was late, used or invented, or its arena may not be read any more
  uint64_t tickets_refused_total = 0;
  uint64_t pending_fences = 0;     // shares whose bytes are still being made
  uint64_t lost_fences_total = 0;  // shares that were withdrawn because their bytes never came
  uint64_t watchers = 0;
  uint64_t events_dropped_total = 0;
  std::vector<MemoryFlow> flows;  // one for each served device and kind
};

}  // namespace arraybridge::daemon

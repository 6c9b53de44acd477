// A Snapshot is what the broker tells about itself: plain numbers and names, taken under the lock, read without it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/broker/ids.h"
#include "proto/boundary/handle.h"

namespace arraybridge {

// No session comes through kAdmin. A call of one that came through kTcp comes, as all others over gRPC, through kGrpc.
enum class Door : uint8_t { kLifeline, kGrpc, kAdmin, kTcp };

// Stands for the owner of a namespace that several users share; the kernel gives this number to no user.
inline constexpr uint32_t kSharedByUsers = UINT32_MAX;

// Who comes over TCP is no user of this host. The subject of its certificate has a number from here on, and no local
// peer that has such a number comes through a door: so whatever is counted, kept apart and hidden by user is so by
// subject too.
inline constexpr uint32_t kFirstSubject = 0xFFF00000;
constexpr bool IsSubject(uint32_t uid) { return uid >= kFirstSubject; }

// What does not change about a share once it is published. Shared between the broker and every answer about it.
struct ShareFacts {
  ShareId id{};
  std::string ns;
  std::string name;
  uint64_t generation = 0;
  std::string description;  // what its maker said of it; opaque to the broker
  bool unnamed = false;
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
  bool out_of_service = false;     // why: what `refused` has of RefusalCause::kFailed
  uint64_t quarantined_bytes = 0;  // of blocks that nobody names any more and somebody may still have mapped
};

// Upper ends of buckets, a factor of about 3 apart. What took longer is in none.
inline constexpr std::array<std::chrono::nanoseconds, 15> kDurationBuckets = {
    std::chrono::microseconds(1),    std::chrono::microseconds(3),    std::chrono::microseconds(10),
    std::chrono::microseconds(30),   std::chrono::microseconds(100),  std::chrono::microseconds(300),
    std::chrono::milliseconds(1),    std::chrono::milliseconds(3),    std::chrono::milliseconds(10),
    std::chrono::milliseconds(30),   std::chrono::milliseconds(100),  std::chrono::milliseconds(300),
    std::chrono::milliseconds(1000), std::chrono::milliseconds(3000), std::chrono::milliseconds(10000)};

// How long something took, and how often.
struct Durations {
  std::array<uint64_t, kDurationBuckets.size()> within{};  // cumulative
  uint64_t count = 0;
  std::chrono::nanoseconds sum{};
};

// What let an arena go, of which nobody could read any more then: its writer or a reader gave it back, a session ended,
// a name was taken away, an administrator did that or changed whose it is.
enum class FreeCause : uint8_t { kRelease, kSessionEnd, kWithdraw, kAdmin, kLast = kAdmin };

// Arenas of one kind of memory of one device; bytes are footprints.
struct MemoryFlow {
  Device device;
  HandleKind kind{};
  uint64_t allocations = 0;  // that there are, dying ones included
  uint64_t allocations_total = 0;
  uint64_t allocated_bytes_total = 0;
  std::array<uint64_t, static_cast<size_t>(FreeCause::kLast) + 1> freed_bytes_total{};  // by FreeCause
  Durations took;  // until the device had given an arena out
};

struct ListFilter {
  bool everybody = false;  // an administrator asks: whose it is does not matter
  std::string ns;          // empty: all
  std::string name_prefix;
  SessionId session{};   // 0: any
  size_t page_size = 0;  // REQUIRES: > 0
  // Of the rows as an answer says them, at most: then the page ends. The first row is on it whatever it has.
  uint64_t bytes_max = UINT64_MAX;
  std::string page_token;  // empty: from the start. INVALID_ARGUMENT if it is none of ours
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
  std::optional<uint32_t> maker_uid;  // none where the asker may not know
  bool goes_with_maker = false;       // its namespace withdraws it when its maker's session ends
};
struct SharePage {
  std::vector<ShareRow> rows;
  std::string next;
};

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
  std::vector<HandleKind> kinds;  // that it can open, and may be offered
  std::string subject;            // empty: it did not come over TCP
};
struct SessionPage {
  std::vector<SessionRow> rows;
  std::string next;
};

struct LeaseRow {
  LeaseId lease{};
  SessionId session{};
  std::shared_ptr<const ShareFacts> facts;
  uint64_t size = 0;
  uint32_t uid = 0;  // of the session
  uint64_t process_id = 0;
  Device device;
};
struct LeasePage {
  std::vector<LeaseRow> rows;
  std::string next;
};

struct NamespaceRow {
  std::string ns;
  uint32_t uid = 0;  // kSharedByUsers
  uint64_t quota_bytes = 0;
  uint64_t charged_bytes = 0;
  uint64_t shares = 0;
  uint64_t share_bytes = 0;
  bool read_only = false;  // for who asks
  std::chrono::milliseconds share_lifetime{};
  std::chrono::milliseconds orphan_grace{};
  bool withdraws_on_exit = false;
};
struct NamespacePage {
  std::vector<NamespaceRow> rows;
  std::string next;
};

struct ChannelRow {
  std::string ns;
  std::string name;
  uint32_t uid = 0;  // whose namespace; kSharedByUsers
  uint64_t capacity = 0;
  uint64_t queued = 0;  // shares that wait
  uint64_t queued_bytes = 0;
  uint64_t senders = 0;
  uint64_t receivers = 0;
  bool direct = false;  // both ends use a direct channel; its entries are not counted
};
struct ChannelPage {
  std::vector<ChannelRow> rows;
  std::string next;
};

struct Snapshot {
  uint64_t sessions = 0;
  uint64_t leases = 0;
  uint64_t shares = 0;
  uint64_t withdrawn_shares = 0;
  uint64_t arenas = 0;
  uint64_t charged_bytes = 0;
  uint64_t tickets = 0;
  uint64_t dying_arenas = 0;
  uint64_t holds = 0;         // taken without a call
  uint64_t pinned_bytes = 0;  // of withdrawn shares that holds alone keep
  uint64_t channels = 0;
  uint64_t queued_shares = 0;  // sent, received by nobody yet
  uint64_t sessions_total = 0;
  uint64_t publishes_total = 0;
  uint64_t acquires_total = 0;
  uint64_t withdrawals_total = 0;  // names taken away, by whomever
  uint64_t tickets_redeemed_total = 0;
  uint64_t tickets_expired_total = 0;  // or gone with their session
  uint64_t tickets_refused_total = 0;  // to redeem them: late, used, invented, or of what may not be read any more
  uint64_t pending_fences = 0;         // shares whose bytes are still being made
  uint64_t lost_fences_total = 0;      // shares that went because their bytes never came
  uint64_t watchers = 0;
  uint64_t events_dropped_total = 0;
  std::vector<MemoryFlow> flows;  // one for each device and kind that is served
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Arguments and results of the Broker's verbs: plain values.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/snapshot.h"
#include "daemon/broker/objects/channel.h"
#include "daemon/broker/objects/history.h"
#include "proto/boundary/fence.h"
#include "proto/boundary/handle.h"

namespace arraybridge::daemon {

using Token = std::array<uint8_t, 16>;
using Clock = std::chrono::steady_clock;

// The unit of deadlines in frames.
inline int64_t InMilliseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

inline constexpr std::string_view kDefaultNamespace = "default";
inline std::string_view NamespaceNameOf(std::string_view name) { return name.empty() ? kDefaultNamespace : name; }

struct OpenedSession {
  SessionId session{};
  Token token{};
};

struct RangeOfArena {
  ArenaId arena{};
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t record = 0;  // in the journal
};

struct AllocateCall {
  std::string_view ns;
  Device device;
  uint64_t size = 0;
  std::function<void()> progress{};  // called as populating advances; may be empty
  uint64_t request = 0;              // as in PublishCall
};

struct AllocatedArena {
  Handle handle;  // the whole arena; descriptor: writable
};

// A session's right to bytes that it publishes once more: a lease, a share, or an entry of a direct channel. One of the
// three is set.
struct ShareSource {
  LeaseId lease{};
  ShareId share{};
  uint64_t direct_channel = 0;  // its number
  uint64_t bit = 0;             // the entry's return bit
};

struct PublishCall {
  std::string_view ns;
  std::string_view name;  // empty: the broker chooses
  ArenaId arena{};
  uint64_t arena_generation = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string description;  // opaque here: checked at the door, read by clients
  Fence fence;
  std::optional<ShareSource> source;  // a forward: the range belongs to what it names
  bool replace = false;
  bool sealed = false;
  std::chrono::milliseconds lifetime{0};  // 0: as the policy of the namespace says
  // The session's sending end of a channel: the share is queued there and has no name, now or later.
  ChannelEndId channel{};
  uint64_t seen_notice = 0;  // of the channel, by the caller (objects/notices.h)
  // The share was an entry of the channel's direct channel, which is ending.
  bool from_direct = false;
  uint64_t entry = 0;         // its number there, from 1
  uint64_t sent_time_ns = 0;  // when it was sent, CLOCK_BOOTTIME
  std::string note;           // how the bytes came; shown in events
  uint64_t request = 0;       // the session's number for this call, unique in the session; 0: unknown
};

struct PublishedShare {
  ShareId share{};
  std::string name;
  uint64_t generation = 0;
  Immutability immutability{};
  std::optional<Clock::time_point> sweep_at;  // the new share is the first of all to expire, at this time: sweep then
};

struct ShareKey {
  std::string_view name;  // if `id` is 0
  ShareId id{};
  uint64_t generation = 0;  // 0: the newest
  uint64_t newer_than = 0;  // with a name: only a share of a greater generation
};

// The result of Acquire for one share. Strings are shared with the broker, not copied.
struct LeasedShare {
  LeaseId lease{};
  std::shared_ptr<const ShareFacts> facts;
  Handle handle;  // without a descriptor
  Immutability immutability{};
  Fence fence;
  ChannelEndId receiver{};  // the end of a channel that received it
};

// A share that the end of a channel has received.
struct Received {
  LeaseId lease{};
  ChannelEndId receiver{};
};

struct AcquiredShares {
  std::vector<LeasedShare> shares;
  std::optional<Handle> descriptor;  // of one arena for which the session had none; its `arena` says which
};

// A namespace as an administrator names it. A shared one is named without a user or with kSharedByUsers.
struct NamespaceOf {
  std::string_view ns;
  std::optional<uint32_t> uid;
};

struct NamespaceQuota {
  uint64_t quota_bytes = 0;
  uint64_t charged_bytes = 0;
  bool set = false;  // by SetQuota
};

struct OpenChannelCall {
  std::string_view ns;
  std::string_view name;
  ChannelRole role{};
  ChannelTerms terms;
  uint64_t request = 0;  // as in PublishCall
  std::string_view run;  // empty: not stated
  bool fresh = false;    // the first end of a run drops what an earlier run left
};

struct OpenedChannel {
  ChannelEndId end{};
  ChannelId channel{};
  uint64_t capacity = 0;
  uint64_t seen_notice = 0;  // the last notice that is not for this end
  ChannelMode mode{};
};

struct ExportedDirectChannel {
  std::vector<UniqueFd> files;
  uint64_t sender_process_id = 0;
  std::shared_ptr<const std::string> sender;  // its name for display; may be null
};

struct DrainedChannel {
  ChannelId channel{};
  uint32_t shares = 0;  // that were dropped
};

// The channel of an end, and where its requests wait.
struct ChannelPlace {
  ChannelId channel{};
  bool own_queue = false;  // a receiver waits behind others in a queue only
};

// The handle that a session would get if it acquired the share now.
struct OfferRow {
  Visitor who;
  std::string why_not;        // empty: the share's kind
  bool waits = false;         // the share's bytes are not final, and the session cannot open the event
  bool gpus_unknown = false;  // the share lies on a GPU, and the session has not said which GPUs it sees
};

struct Inspected {
  ShareRow row;
  Visit maker;  // count 0
  std::vector<Visit> readers;
  uint64_t forgotten = 0;
  std::vector<OfferRow> offers;
  DeviceFacts device;
};

struct EndedFences {
  std::vector<uint64_t> awaited;                            // shares whose event other sessions may still wait for
  std::vector<std::shared_ptr<const ShareFacts>> finished;  // shares that were pending until now
};

}  // namespace arraybridge::daemon

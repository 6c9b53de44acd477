// SPDX-License-Identifier: Apache-2.0
// The codec converts requests and answers between plain values and the messages of arraybridge.v1; no other file knows
// the encoding. An answer is untrusted until it is decoded: DATA_LOSS if it does not parse.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arraybridge/broker.h>
#include <arraybridge/channel.h>
#include <arraybridge/share.h>
#include <arraybridge/watch.h>

#include "proto/boundary/fence.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"
#include "proto/boundary/share_limits.h"

namespace arraybridge::codec {

// The kinds of memory and devices that a client can open.
struct Capabilities {
  std::vector<HandleKind> kinds;
  std::string boot_id;
  uint64_t pid_namespace = 0;
  std::vector<std::string> gpu_uuids;
  uint32_t cuda_driver_version = 0;
  uint64_t shm_device = 0;  // device number of /dev/shm
  bool wsl = false;
  bool tegra = false;
};

struct OpenSession {
  std::string client;
  uint64_t process_id = 0;
  Capabilities capabilities;
  std::string token{};
};

// The API's limit on a note; a broker may have a lower one.
inline constexpr uint64_t kNoteBytesMax = 64;

struct Limits {
  uint64_t names_per_request_max = 0;
  uint64_t request_timeout_max_ms = 0;
  uint64_t arena_idle_ms = 0;
  uint64_t own_arena_bytes_min = 0;
  uint64_t note_bytes_max = kNoteBytesMax;
  ShareLimits share;
};

struct Server {
  ServerInfo info;
  Limits limits;
  bool events = false;    // the broker accepts shares published with an event
  uint64_t clock_ms = 0;  // the broker's clock, for deadlines; 0: it ignores deadlines
};

struct Opened {
  uint64_t session = 0;
  uint32_t protocol = 0;
  Server server;
};

// A range in an arena of this session that the broker has released.
struct Returned {
  uint64_t arena = 0;
  uint64_t offset = 0;
  uint64_t size = 0;

  friend bool operator==(const Returned&, const Returned&) = default;
};

struct Withdrawn {
  uint64_t shares = 0;
  std::vector<Returned> returned;
};

struct Allocate {
  std::string_view ns;
  Device device;
  uint64_t size = 0;
  uint64_t timeout_ms = 0;
};

struct Allocated {
  bool has_handle = false;
  Handle handle;  // without its descriptor
  std::vector<Returned> returned;
};

// An ArraySpec and the number of bytes that the array spans.
struct PublishedArray {
  ArraySpec spec;
  uint64_t size = 0;
};

// The session's right to bytes that it publishes once more. All 0: the range is its own.
struct Source {
  uint64_t lease = 0;
  uint64_t share = 0;  // named, or in a hazard slot
  uint64_t direct_channel = 0;
  uint64_t bit = 0;  // of the return bitmap of the direct channel
};

struct Publish {
  std::string_view ns;
  std::string_view name;
  uint64_t arena = 0;
  uint64_t arena_generation = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::vector<PublishedArray> arrays;
  Fence fence;
  bool replace = false;
  bool sealed = false;
  std::string_view structure;
  std::string_view metadata;
  uint64_t channel = 0;  // the sending end in this session; 0: the share gets a name
  uint64_t timeout_ms = 0;
  uint64_t lifetime_ms = 0;
  std::string_view note;
  uint64_t seen_notice = 0;
  Source source;
};

struct Published {
  uint64_t share = 0;
  std::string name;
  uint64_t generation = 0;
  Immutability immutability = Immutability::kByContract;
  std::vector<Returned> returned;
};

struct DescribedShare {
  Share share;              // without the broker's id
  Handle handle;            // without its descriptor
  uint32_t fence_kind = 0;  // as in the message
  Fence fence;
  // Not OK if the publisher described an array that cannot be read. The error concerns this share only; the answer is
  // valid.
  Status arrays;
};

struct Grant {
  uint64_t lease = 0;
  std::string_view share;  // encoded; decoded only if these bytes are not in the cache
  Sent sent{};             // of a share that came from a channel
};

struct Grants {
  std::vector<Grant> shares;
  uint64_t descriptor_arena = 0;
};

struct OpenedChannel {
  uint64_t channel = 0;
  uint64_t capacity = 0;
  uint64_t seen_notice = 0;
  ChannelMode mode{};
};

struct Release {
  std::vector<uint64_t> leases;
  std::vector<uint64_t> arenas;
  std::vector<uint64_t> unmapped;
  bool hazards_cleared = false;  // hazard slots of withdrawn shares have been cleared
  std::vector<uint64_t> done{};
  std::vector<uint64_t> lost{};
  std::vector<uint64_t> direct_channels{};
  std::vector<std::pair<uint64_t, std::string>> notes{};  // by share id
  std::optional<Capabilities> capabilities{};             // replaces the earlier ones

  bool ends_fences() const { return !done.empty() || !lost.empty(); }
  bool empty() const {
    return leases.empty() && arenas.empty() && unmapped.empty() && direct_channels.empty() && !hazards_cleared &&
           !ends_fences() && notes.empty() && !capabilities;
  }
};

struct Released {
  std::vector<Returned> returned;
  std::vector<uint64_t> awaited;  // the ended fences whose events other processes may still wait for
};

struct Listed {
  std::vector<ListedShare> shares;
  std::string next_page_token;
};

std::string Encode(const OpenSession& request);
std::string Encode(const Allocate& request);
std::string Encode(const Publish& request);
std::string Encode(const Release& request);
// The encoded size of these arrays in a Publish, as the broker counts it.
uint64_t SpecBytes(std::span<const PublishedArray> arrays);
std::string EncodeMapped(uint64_t arena);
enum class BrowsePart : uint8_t { kCatalogue = 0, kHazardPage = 1, kQueue = 2, kDirectChannel = 8 };
std::string EncodeBrowse(std::string_view ns, BrowsePart part);
std::string EncodeHazardPageMapped(std::string_view ns);
std::string EncodeQueueMapped();
std::string EncodeAcquire(std::string_view ns, std::span<const ShareRef> shares, uint64_t timeout_ms,
                          bool final_only = false, std::string_view note = {}, uint64_t fence_timeout_ms = 0);
std::string EncodeOpenChannel(std::string_view ns, std::string_view name, Channel::Role role,
                              const ChannelOptions& options);
std::string EncodeDrainChannel(std::string_view ns, std::string_view name, bool remove);
std::string EncodeCloseChannel(uint64_t channel, bool complete);
std::string EncodeReceive(uint64_t channel, uint64_t timeout_ms, uint64_t seen_notice, bool revoke = false);
// `number`: of the direct channel, from its control block.
std::string EncodeDirectMapped(uint64_t channel, uint64_t number);
std::string EncodeBrowseDirect(uint64_t channel);
// Encodes a publisher's description of a share, which DecodeDescription reads.
std::string EncodeDescription(std::span<const PublishedArray> arrays, std::string_view structure,
                              std::string_view metadata);
// `direct_channel_of`: the receiving end of the channel whose direct channel refers to the arena; 0: none.
std::string EncodeExport(uint64_t arena, uint64_t generation, uint64_t direct_channel_of = 0);
std::string EncodeOpenWatch(std::string_view ns, std::string_view name_prefix, std::span<const EventKind> kinds);
std::string EncodeNextEvents(uint64_t watch, uint64_t timeout_ms);
std::string EncodeCloseWatch(uint64_t watch);
std::string EncodeWithdraw(std::string_view ns, std::span<const ShareRef> shares);
std::string EncodeList(std::string_view ns, std::string_view name_prefix, std::string_view page_token);

Result<Server> DecodeServer(std::string_view message);
Result<Opened> DecodeOpened(std::string_view message);
Result<Allocated> DecodeAllocated(std::string_view message);
Result<Published> DecodePublished(std::string_view message);
// Decodes an AcquireResponse. REQUIRES: the message outlives the grants.
Result<Grants> DecodeGrants(std::string_view message);
Result<DescribedShare> DecodeShare(std::string_view message);
// Decodes a publisher's description of a share. It has no handle.
Result<DescribedShare> DecodeDescription(std::string_view message);
Result<OpenedChannel> DecodeOpenedChannel(std::string_view message);
// The id of an opened watch, and the events of a watch.
Result<uint64_t> DecodeWatch(std::string_view message);
Result<std::vector<Event>> DecodeEvents(std::string_view message);
Result<Handle> DecodeExported(std::string_view message);
Result<Released> DecodeReleased(std::string_view message);
// The sender of a direct channel, in the answer to EncodeBrowseDirect.
Result<Sender> DecodeDirectSender(std::string_view message);
Result<Withdrawn> DecodeWithdrawn(std::string_view message);
Result<Listed> DecodeListed(std::string_view message);
Result<Stats> DecodeStats(std::string_view message);
// The status in an Error message. Always an error, even if `code` is unknown or the message does not parse.
Status DecodeError(uint32_t code, std::string_view message);

}  // namespace arraybridge::codec

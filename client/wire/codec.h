// SPDX-License-Identifier: Apache-2.0
// The codec reads answers, which are untrusted until they are read: DATA_LOSS if one does not parse, or has impossible
// values. Requests are the structs of proto/wire; the codec encodes those that refer to values of the client.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arraybridge/broker.h>
#include <arraybridge/share.h>
#include <arraybridge/watch.h>

#include "proto/boundary/fence.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"
#include "proto/boundary/share_limits.h"
#include "proto/wire/messages.h"

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

// An ArraySpec and the number of bytes that the array spans.
struct PublishedArray {
  ArraySpec spec;
  uint64_t size = 0;
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

// A request that owns what it is made of.
struct Release : wire::ReleaseRequest {
  std::vector<std::pair<uint64_t, std::string>> own_notes{};  // by share id
  std::optional<Capabilities> own_capabilities{};             // replaces the earlier ones

  bool ends_fences() const { return !done.empty() || !lost.empty(); }
  bool empty() const {
    return leases.empty() && arenas.empty() && unmapped.empty() && direct_channels.empty() && !hazards_cleared &&
           !ends_fences() && own_notes.empty() && !own_capabilities;
  }
};

struct Listed {
  std::vector<ListedShare> shares;
  std::string next_page_token;
};

// A Publish without its arrays and its event, and these.
struct Publish {
  wire::PublishRequest message;
  std::vector<PublishedArray> arrays{};
  Fence fence{};
};

std::string Encode(const Publish& request);
std::string Encode(const Release& request);
// A publisher's description of a share, which DecodeDescription reads.
std::string EncodeDescription(std::span<const PublishedArray> arrays, std::string_view structure,
                              std::string_view metadata);
// The encoded size of these arrays in a Publish, as the broker counts it.
uint64_t SpecBytes(std::span<const PublishedArray> arrays);
wire::ClientCapabilities CapabilitiesOf(const Capabilities& capabilities);
std::vector<wire::ShareRef> RefsOf(std::span<const ShareRef> shares);

Status Malformed(std::string_view what);

// The answer as `convert`, which returns a Result, makes it of the message.
template <class Message, class Convert>
auto Read(std::string_view bytes, Convert convert) -> decltype(convert(std::declval<Message&>())) try {
  auto message = wire::Decode<Message>(bytes);
  if (message.ok()) return convert(*message);
  return Status(Code::kDataLoss, "the broker's answer: " + message.status().message(), "MALFORMED_ANSWER");
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for an answer of ", bytes.size(), " bytes");
}
// The answer as it is; its texts are views of `bytes`.
template <class Message>
Result<Message> Read(std::string_view bytes) {
  return Read<Message>(bytes, [](Message& reply) -> Result<Message> { return std::move(reply); });
}

Device DeviceOf(const std::optional<wire::Device>& device);
Immutability ImmutabilityOf(wire::Immutability value);
// The handle in an AllocateResponse or an ExportResponse, without its descriptor.
Result<Handle> HandleOf(const wire::Handle& raw);
Result<Handle> DecodeExported(std::string_view message);
Server ServerOf(const wire::GetServerInfoResponse& reply);
// Decodes an AcquireResponse. REQUIRES: the message outlives the grants.
Result<Grants> DecodeGrants(std::string_view message);
Result<DescribedShare> DecodeShare(std::string_view message);
// Decodes a publisher's description of a share. It has no handle.
Result<DescribedShare> DecodeDescription(std::string_view message);
Result<std::vector<Event>> DecodeEvents(std::string_view message);
Result<Listed> DecodeListed(std::string_view message);
Result<Stats> DecodeStats(std::string_view message);
// The status in an Error message. Always an error, even if `code` is unknown or the message does not parse.
Status DecodeError(uint32_t code, std::string_view message);

}  // namespace arraybridge::codec

// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/message_limits.h"

#include <algorithm>
#include <optional>

#include "daemon/broker/ledger/event.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/service/wire/messages.h"
#include "proto/boundary/fence.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/release_limit.h"
#include "proto/boundary/share_limits.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kClientNameBytesMax = 64;
constexpr uint64_t kTokenBytesMax = 256;
constexpr uint64_t kPageTokenNumbersBytes = 64;
constexpr uint64_t kHandleKindsMax = 16;
constexpr uint64_t kGpusMax = 256;
constexpr uint64_t kGpuUuidBytesMax = 96;

ShareLimits ShareLimitsOf(const Limits& limits) {
  return {limits.frame_bytes_max, limits.name_bytes_max,      limits.arrays_per_share_max, limits.rank_max,
          limits.spec_bytes_max,  limits.structure_bytes_max, limits.metadata_bytes_max};
}

Status CheckShape(const ShareLimits& limits, const wire::ArraySpec& spec, uint64_t index) {
  const size_t rank = spec.shape.size();
  AB_RETURN_IF_ERROR(CheckRank(limits, rank, index));
  if (!spec.strides.empty() && spec.strides.size() != rank) {
    return InvalidArgument("array ", index, " has ", spec.strides.size(), " strides for rank ", rank);
  }
  const auto negative = std::ranges::find_if(spec.shape, [](int64_t extent) { return extent < 0; });
  if (negative == spec.shape.end()) return Ok();
  return InvalidArgument("array ", index, " has a negative extent ", *negative);
}

// The number of elements; UINT64_MAX means that many or more. REQUIRES: no extent is negative.
uint64_t ElementsOf(const wire::ArraySpec& spec) {
  uint64_t elements = 1;
  for (const int64_t extent : spec.shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements)) {
      elements = UINT64_MAX;  // unless a later extent is 0
    }
  }
  return elements;
}

// The range of elements that strides reach, relative to the first element, both ends included.
struct Reach {
  int64_t lowest = 0;
  int64_t highest = 0;
};

// nullopt if the range exceeds 64 bits. REQUIRES: as many strides as extents, and every extent is at least 1.
std::optional<Reach> ReachOf(const wire::ArraySpec& spec) {
  Reach reach;
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    int64_t steps = 0;
    int64_t& end = spec.strides[i] < 0 ? reach.lowest : reach.highest;
    if (__builtin_mul_overflow(spec.shape[i] - 1, spec.strides[i], &steps) ||
        __builtin_add_overflow(end, steps, &end)) {
      return std::nullopt;
    }
  }
  return reach;
}

// REQUIRES: CheckElement accepts the width.
uint64_t ElementsIn(uint64_t bytes, uint32_t bits) {
  if (bits % 8 == 0) return bytes / (bits / 8);
  return (bytes > UINT64_MAX / 8 ? UINT64_MAX : bytes * 8) / bits;
}

// Checks that the elements given by bits, shape and strides lie in the share, because readers access these bytes
// whatever the stated sizes are. Strided arrays are rare; a contiguous one costs one division. REQUIRES: the array
// starts in the share, and no extent is negative.
Status CheckSpan(const wire::ArraySpec& spec, uint64_t index, uint64_t share_bytes) {
  const uint64_t elements = ElementsOf(spec);
  if (elements == 0) return Ok();
  const uint64_t room = ElementsIn(share_bytes - spec.offset, spec.bits);
  const auto refused = [&](auto... what) {
    return InvalidArgument("array ", index, what..., ", each of ", spec.bits, " bits, from byte ", spec.offset,
                           " of a share of ", share_bytes, " bytes");
  };
  if (elements == UINT64_MAX) return refused(" has more elements than fit into 64 bits");
  if (elements > room) return refused(" has ", elements, " elements");
  if (spec.strides.empty()) return Ok();
  const auto reach = ReachOf(spec);
  if (!reach) return refused(" has strides whose range does not fit into 64 bits");
  // -lowest and highest + 1 cannot overflow as unsigned numbers.
  if (0 - static_cast<uint64_t>(reach->lowest) > ElementsIn(spec.offset, spec.bits)) {
    return refused(" has strides that reach ", reach->lowest, " elements");
  }
  if (static_cast<uint64_t>(reach->highest) + 1 <= room) return Ok();
  return refused(" has strides that reach element ", reach->highest);
}

Status CheckSpec(const ShareLimits& limits, const wire::ArraySpec& spec, uint64_t index, uint64_t share_bytes) {
  AB_RETURN_IF_ERROR(CheckElement(spec.code, spec.bits, spec.lanes, index));
  AB_RETURN_IF_ERROR(CheckShape(limits, spec, index));
  if (spec.offset % kArrayAlignment != 0) {
    return InvalidArgument("array ", index, " starts at byte ", spec.offset, ", not a multiple of ", kArrayAlignment);
  }
  if (spec.offset > share_bytes || spec.size > share_bytes - spec.offset) {
    return InvalidArgument("array ", index, " spans ", spec.size, " bytes from byte ", spec.offset, " of a share of ",
                           share_bytes, " bytes");
  }
  return CheckSpan(spec, index, share_bytes);
}

Status CheckFence(const wire::Fence& fence) {
  const bool is_event = fence.kind == wire::Fence::Kind::kEvent;
  if (!is_event && fence.kind != wire::Fence::Kind::kDone) {
    return InvalidArgument("fence kind ", static_cast<int>(fence.kind), " is unknown");
  }
  const size_t wanted = is_event ? kEventBytes : 0;
  if (fence.opaque.size() == wanted) return Ok();
  return InvalidArgument("the fence has ", fence.opaque.size(), " bytes; its kind has ", wanted).Because("BAD_FENCE");
}

// Of encoded ArraySpecs: their number is limited before any of them is decoded.
uint64_t ArraysIn(std::string_view specs) {
  wire::Fault fault;
  uint64_t arrays = 0;
  for (wire::Reader in(specs, &fault); in.Next(); in.Skip()) {
    if (in.tag() == wire::Tag(1, wire::Type::kBytes)) ++arrays;  // ArraySpecs.arrays
  }
  return arrays;
}

}  // namespace

size_t AnswerBytesMax(const Limits& limits) {
  return std::min<size_t>(limits.frame_bytes_max, kFrameBytesMax) - sizeof(FrameHeader);
}

Status CheckHello(const wire::OpenSessionRequest& request) {
  if (request.protocol_min > kProtocolVersion || request.protocol_max < kProtocolVersion) {
    return FailedPrecondition("the client speaks protocol ", request.protocol_min, " to ", request.protocol_max,
                              ", this broker ", kProtocolVersion, " to ", kProtocolVersion)
        .Because("PROTOCOL_VERSION");
  }
  AB_RETURN_IF_ERROR(CheckBytes("the client's name", request.client.size(), "maximum", kClientNameBytesMax));
  AB_RETURN_IF_ERROR(CheckBytes("the token", request.token.size(), "maximum", kTokenBytesMax));
  return request.capabilities ? CheckCapabilities(*request.capabilities) : Ok();
}

Status CheckCapabilities(const wire::ClientCapabilities& capabilities) {
  AB_RETURN_IF_ERROR(CheckCount("handle kinds", capabilities.kinds.size(), "maximum", kHandleKindsMax));
  AB_RETURN_IF_ERROR(CheckCount("GPUs", capabilities.gpu_uuids.size(), "maximum", kGpusMax));
  for (const std::string_view gpu : capabilities.gpu_uuids) {
    AB_RETURN_IF_ERROR(CheckBytes("the UUID of a GPU", gpu.size(), "maximum", kGpuUuidBytesMax));
  }
  return Ok();
}

Status CheckNamespace(const Limits& limits, std::string_view ns) {
  return CheckBytes("the namespace", ns.size(), "maximum", limits.name_bytes_max);
}

Status CheckPublish(const Limits& limits, const wire::PublishRequest& request) {
  const ShareLimits share_limits = ShareLimitsOf(limits);
  ShareSizes share;
  share.namespace_bytes = request.namespace_.size();
  share.name_bytes = request.name.size();
  share.arrays = ArraysIn(request.specs);
  share.spec_bytes = request.specs.size();
  share.structure_bytes = request.structure.size();
  share.metadata_bytes = request.metadata.size();
  AB_RETURN_IF_ERROR(CheckShare(share_limits, share));
  AB_RETURN_IF_ERROR(CheckNote(limits, request.note));
  if (request.fence) AB_RETURN_IF_ERROR(CheckFence(*request.fence));
  AB_ASSIGN_OR_RETURN(const auto specs, wire::Decode<wire::ArraySpecs>(request.specs));
  for (uint64_t index = 0; index < specs.arrays.size(); ++index) {
    AB_RETURN_IF_ERROR(CheckSpec(share_limits, specs.arrays[index], index, request.size));
  }
  return Ok();
}

Status CheckShares(const Limits& limits, std::span<const ShareKey> shares) {
  if (shares.empty()) return InvalidArgument("the request names no share");
  AB_RETURN_IF_ERROR(CheckCount("shares", shares.size(), "maximum", limits.names_per_request));
  for (const ShareKey& share : shares) {
    if (share.name.empty() && share.id == ShareId{}) {
      return InvalidArgument("a share is identified by a name that is not empty or an id that is not 0");
    }
    if (share.newer_than != 0 && share.id != ShareId{}) {
      return InvalidArgument("newer_than goes with a name: a share with an id has one generation");
    }
    AB_RETURN_IF_ERROR(CheckBytes("a name", share.name.size(), "maximum", limits.name_bytes_max));
  }
  return Ok();
}

Status CheckNote(const Limits& limits, std::string_view note) {
  if (note.empty()) return Ok();
  AB_RETURN_IF_ERROR(CheckBytes("the note", note.size(), "maximum", limits.note_bytes_max));
  return CheckName("the note", note, limits.note_bytes_max);
}

Status CheckWatch(const Limits& limits, const wire::WatchRequest& request) {
  AB_RETURN_IF_ERROR(CheckNamespace(limits, request.namespace_));
  AB_RETURN_IF_ERROR(CheckBytes("the name prefix", request.name_prefix.size(), "maximum", limits.name_bytes_max));
  for (const wire::EventKind each : request.kinds) {
    const int kind = static_cast<int>(each);
    if (kind < 1 || kind > static_cast<int>(EventKind::kLast)) {
      return InvalidArgument("event kind ", kind, " is unknown; there are 1 to ", static_cast<int>(EventKind::kLast));
    }
  }
  if (request.watch != 0 || !request.close) return Ok();
  return InvalidArgument("the request names no watch");
}

Status CheckOpenChannel(const Limits& limits, const wire::OpenChannelRequest& request) {
  AB_RETURN_IF_ERROR(CheckNamespace(limits, request.namespace_));
  AB_RETURN_IF_ERROR(CheckBytes("the channel's name", request.name.size(), "maximum", limits.name_bytes_max));
  AB_RETURN_IF_ERROR(CheckBytes("the channel's run", request.run.size(), "maximum", kClientNameBytesMax));
  if (request.mode < wire::ChannelMode::kUnspecified || request.mode > wire::ChannelMode::kLatest) {
    return InvalidArgument("channel mode ", static_cast<int>(request.mode),
                           " is unknown; there are 1 (queue), 2 (broadcast) and 3 (latest)");
  }
  using Role = wire::OpenChannelRequest::Role;
  if (request.role == Role::kSender || request.role == Role::kReceiver) return Ok();
  return InvalidArgument("role ", static_cast<int>(request.role), " is neither SENDER nor RECEIVER");
}

Status CheckWithdraw(const Limits& limits, const wire::WithdrawRequest& request, std::span<const ShareKey> shares) {
  AB_RETURN_IF_ERROR(CheckNamespace(limits, request.namespace_));
  if (!request.channel.empty() && !shares.empty()) {
    return InvalidArgument("a Withdraw names shares or a channel, not both");
  }
  if (request.channel.empty()) return CheckShares(limits, shares);
  return CheckBytes("the channel's name", request.channel.size(), "maximum", limits.name_bytes_max);
}

Status CheckSend(const wire::PublishRequest& request) {
  if (request.name.empty() && !request.replace && !request.sealed) return Ok();
  return InvalidArgument("a share that is sent into a channel must have no name, replace nothing and not be sealed");
}

Status CheckRelease(const wire::ReleaseRequest& request) {
  const uint64_t numbers = request.leases.size() + request.arenas.size() + request.unmapped.size() +
                           request.done.size() + request.lost.size() + request.direct_channels.size() +
                           request.pending.size();
  if (numbers <= kReleaseNumbersMax) return Ok();
  return InvalidArgument(numbers, " leases, arenas, shares and direct channels in one Release (at most ",
                         kReleaseNumbersMax, "): release them in several requests")
      .Because("TOO_MANY");
}

Status CheckList(const Limits& limits, const v1::ListRequest& request) {
  if (!v1::ListRequest::Kind_IsValid(request.kind())) {
    return InvalidArgument("list kind ", static_cast<int>(request.kind()), " is unknown");
  }
  AB_RETURN_IF_ERROR(CheckNamespace(limits, request.namespace_()));
  AB_RETURN_IF_ERROR(CheckBytes("the name prefix", request.name_prefix().size(), "maximum", limits.name_bytes_max));
  // The token of a list of channels holds the channel's name and its namespace.
  return CheckBytes("the page token", request.page_token().size(), "maximum",
                    2 * limits.name_bytes_max + kPageTokenNumbersBytes);
}

}  // namespace arraybridge::daemon

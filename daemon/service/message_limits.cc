#include "daemon/service/message_limits.h"

#include <algorithm>

#include "proto/boundary/frame.h"
#include "proto/boundary/handle.h"

namespace arraybridge {
namespace {

constexpr uint64_t kClientNameBytesMax = 64;
constexpr uint64_t kFenceBytesMax = 64;   // an interprocess event
constexpr uint64_t kGrantBytesMax = 512;  // of an answer to Acquire, beside names and what a share's maker described
constexpr uint64_t kPageTokenBytesMax = 512;
constexpr int kHandleKindsMax = 16;
constexpr int kGpusMax = 256;

Status CheckBytes(std::string_view what, uint64_t bytes, std::string_view limit, uint64_t most) {
  if (bytes <= most) return Ok();
  return InvalidArgument(what, " has ", bytes, " bytes (", limit, " ", most, ")").Because("TOO_LARGE");
}

Status CheckCount(std::string_view what, uint64_t count, std::string_view limit, uint64_t most) {
  if (count <= most) return Ok();
  return InvalidArgument(count, " ", what, " in one request (", limit, " ", most, ")").Because("TOO_MANY");
}

Status CheckShape(const Limits& limits, const v1::ArraySpec& spec, int index) {
  const auto rank = static_cast<uint64_t>(spec.shape_size());
  if (rank > limits.rank_max) {
    return InvalidArgument("array ", index, " has rank ", rank, " (limits.rank_max ", limits.rank_max, ")")
        .Because("TOO_LARGE");
  }
  if (spec.strides_size() != 0 && spec.strides_size() != spec.shape_size()) {
    return InvalidArgument("array ", index, " has ", spec.strides_size(), " strides for rank ", rank);
  }
  for (const int64_t extent : spec.shape()) {
    if (extent < 0) return InvalidArgument("array ", index, " has a negative extent ", extent);
  }
  return Ok();
}

Status CheckSpec(const Limits& limits, const v1::ArraySpec& spec, int index, uint64_t share_bytes) {
  if (spec.lanes() != 1) return InvalidArgument("array ", index, " has ", spec.lanes(), " lanes; only 1 is known");
  if (spec.bits() == 0) return InvalidArgument("array ", index, " has elements of 0 bits");
  AB_RETURN_IF_ERROR(CheckShape(limits, spec, index));
  if (spec.offset() % kArrayAlignment != 0) {
    return InvalidArgument("array ", index, " starts at byte ", spec.offset(), ", not a multiple of ", kArrayAlignment);
  }
  if (spec.offset() > share_bytes || spec.size() > share_bytes - spec.offset()) {
    return InvalidArgument("array ", index, " spans ", spec.size(), " bytes from byte ", spec.offset(),
                           " of a share of ", share_bytes, " bytes");
  }
  return Ok();
}

// What is published has to fit into one answer to Acquire, or nobody could ever get it.
Status CheckDescription(const Limits& limits, const v1::PublishRequest& request) {
  const uint64_t bytes = request.specs().ByteSizeLong() + request.structure().size() + request.metadata().size();
  const uint64_t beside = kGrantBytesMax + kFenceBytesMax + 2 * limits.name_bytes_max;
  const uint64_t room = std::max<uint64_t>(AnswerBytesMax(limits), beside) - beside;
  return CheckBytes("the description (specs, structure, metadata)", bytes, "what a frame holds", room);
}

Status CheckFence(const v1::Fence& fence) {
  if (!v1::Fence::Kind_IsValid(fence.kind())) return InvalidArgument("fence kind ", fence.kind(), " is unknown");
  return CheckBytes("the fence", fence.opaque().size(), "maximum", kFenceBytesMax);
}

}  // namespace

size_t AnswerBytesMax(const Limits& limits) {
  return std::min<size_t>(limits.frame_bytes_max, kFrameBytesMax) - sizeof(FrameHeader);
}

Status CheckHello(const Limits&, const v1::OpenSessionRequest& request) {
  if (request.protocol_min() > kProtocolVersion || request.protocol_max() < kProtocolVersion) {
    return FailedPrecondition("the client speaks protocol ", request.protocol_min(), " to ", request.protocol_max(),
                              ", this broker ", kProtocolVersion, " to ", kProtocolVersion)
        .Because("PROTOCOL_VERSION");
  }
  AB_RETURN_IF_ERROR(CheckBytes("the client's name", request.client().size(), "maximum", kClientNameBytesMax));
  AB_RETURN_IF_ERROR(CheckCount("handle kinds", static_cast<uint64_t>(request.capabilities().kinds_size()), "maximum",
                                kHandleKindsMax));
  return CheckCount("GPUs", static_cast<uint64_t>(request.capabilities().gpu_uuids_size()), "maximum", kGpusMax);
}

Status CheckNamespace(const Limits& limits, std::string_view ns) {
  return CheckBytes("the namespace", ns.size(), "limits.name_bytes_max", limits.name_bytes_max);
}

Status CheckPublish(const Limits& limits, const v1::PublishRequest& request) {
  AB_RETURN_IF_ERROR(CheckNamespace(limits, request.namespace_()));
  AB_RETURN_IF_ERROR(CheckBytes("the name", request.name().size(), "limits.name_bytes_max", limits.name_bytes_max));
  const auto arrays = static_cast<uint64_t>(request.specs().arrays_size());
  if (arrays == 0) return InvalidArgument("a share holds at least one array");
  AB_RETURN_IF_ERROR(CheckCount("arrays", arrays, "limits.arrays_per_share_max", limits.arrays_per_share_max));
  AB_RETURN_IF_ERROR(
      CheckBytes("specs", request.specs().ByteSizeLong(), "limits.spec_bytes_max", limits.spec_bytes_max));
  AB_RETURN_IF_ERROR(
      CheckBytes("structure", request.structure().size(), "limits.structure_bytes_max", limits.structure_bytes_max));
  AB_RETURN_IF_ERROR(
      CheckBytes("metadata", request.metadata().size(), "limits.metadata_bytes_max", limits.metadata_bytes_max));
  AB_RETURN_IF_ERROR(CheckDescription(limits, request));
  AB_RETURN_IF_ERROR(CheckFence(request.fence()));
  for (int i = 0; i < request.specs().arrays_size(); ++i) {
    AB_RETURN_IF_ERROR(CheckSpec(limits, request.specs().arrays(i), i, request.size()));
  }
  return Ok();
}

Status CheckRefs(const Limits& limits, const google::protobuf::RepeatedPtrField<v1::ShareRef>& refs) {
  if (refs.empty()) return InvalidArgument("the request names no share");
  AB_RETURN_IF_ERROR(
      CheckCount("shares", static_cast<uint64_t>(refs.size()), "limits.names_per_request", limits.names_per_request));
  for (const v1::ShareRef& ref : refs) {
    if (ref.key_case() == v1::ShareRef::KEY_NOT_SET || (ref.has_name() && ref.name().empty()) ||
        (ref.has_id() && ref.id() == 0)) {
      return InvalidArgument("a share is asked for by a name that is not empty or an id that is not 0");
    }
    AB_RETURN_IF_ERROR(CheckBytes("a name", ref.name().size(), "limits.name_bytes_max", limits.name_bytes_max));
  }
  return Ok();
}

Status CheckRelease(const Limits& limits, const v1::ReleaseRequest& request) {
  AB_RETURN_IF_ERROR(CheckCount("leases", static_cast<uint64_t>(request.leases_size()), "limits.leases_per_session",
                                limits.leases_per_session));
  AB_RETURN_IF_ERROR(CheckCount("arenas", static_cast<uint64_t>(request.arenas_size()), "limits.arenas_per_session",
                                limits.arenas_per_session));
  return CheckCount("unmapped arenas", static_cast<uint64_t>(request.unmapped_size()), "limits.frame_bytes_max",
                    limits.frame_bytes_max);
}

Status CheckList(const Limits& limits, const v1::ListRequest& request) {
  if (!v1::ListRequest::Kind_IsValid(request.kind())) {
    return InvalidArgument("list kind ", static_cast<int>(request.kind()), " is unknown");
  }
  AB_RETURN_IF_ERROR(CheckNamespace(limits, request.namespace_()));
  AB_RETURN_IF_ERROR(
      CheckBytes("the name prefix", request.name_prefix().size(), "limits.name_bytes_max", limits.name_bytes_max));
  return CheckBytes("the page token", request.page_token().size(), "maximum", kPageTokenBytesMax);
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/share_limits.h"

#include <algorithm>

#include "proto/boundary/frame.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

constexpr uint64_t kGrantBytesMax = 512;  // size of an Acquire answer without names and description

// The description must fit into one Acquire answer; otherwise no client could get the share.
Status CheckDescription(const ShareLimits& limits, const ShareSizes& share) {
  const uint64_t bytes = share.spec_bytes + share.structure_bytes + share.metadata_bytes;
  const uint64_t frame = std::min<uint64_t>(limits.frame_bytes_max, kFrameBytesMax) - sizeof(FrameHeader);
  const uint64_t name = limits.name_bytes_max == ShareLimits::kNone ? 0 : limits.name_bytes_max;
  const uint64_t beside = kGrantBytesMax + kFenceBytesMax + 2 * name;
  return CheckBytes("the description (specs, structure, metadata)", bytes, "the size of a frame",
                    std::max(frame, beside) - beside);
}

}  // namespace

Status CheckBytes(std::string_view what, uint64_t bytes, std::string_view limit, uint64_t most) {
  if (bytes <= most) return Ok();
  return InvalidArgument(what, " has ", bytes, " bytes (", limit, " ", most, ")").Because("TOO_LARGE");
}

Status CheckText(std::string_view what, std::string_view text) {
  if (IsUtf8(text)) return Ok();
  return InvalidArgument(what, " must be UTF-8, not '", text, "'").Because("BAD_NAME");
}

Status CheckCount(std::string_view what, uint64_t count, std::string_view limit, uint64_t most) {
  if (count <= most) return Ok();
  return InvalidArgument(count, " ", what, " in one request (", limit, " ", most, ")").Because("TOO_MANY");
}

Status CheckShare(const ShareLimits& limits, const ShareSizes& share) {
  constexpr std::string_view kName = "limits.name_bytes_max";
  AB_RETURN_IF_ERROR(CheckBytes("the namespace", share.namespace_bytes, kName, limits.name_bytes_max));
  AB_RETURN_IF_ERROR(CheckBytes("the name", share.name_bytes, kName, limits.name_bytes_max));
  if (share.arrays == 0) return InvalidArgument("a share holds at least one array");
  AB_RETURN_IF_ERROR(CheckCount("arrays", share.arrays, "limits.arrays_per_share_max", limits.arrays_per_share_max));
  AB_RETURN_IF_ERROR(CheckBytes("specs", share.spec_bytes, "limits.spec_bytes_max", limits.spec_bytes_max));
  AB_RETURN_IF_ERROR(
      CheckBytes("structure", share.structure_bytes, "limits.structure_bytes_max", limits.structure_bytes_max));
  AB_RETURN_IF_ERROR(
      CheckBytes("metadata", share.metadata_bytes, "limits.metadata_bytes_max", limits.metadata_bytes_max));
  return CheckDescription(limits, share);
}

Status CheckElement(uint64_t code, uint64_t bits, uint64_t lanes, uint64_t index) {
  constexpr uint64_t kMax = std::numeric_limits<uint8_t>::max();
  const auto refused = [&](auto... what) { return InvalidArgument("array ", index, what...).Because("ELEMENT_TYPE"); };
  if (lanes != 1) return refused(" has ", lanes, " lanes; only 1 is supported");
  // Whole bytes, or a part of one byte: DLPack packs elements of 4 and 6 bits, other libraries of 1 and 2 bits.
  const bool is_width = bits % 8 == 0 || bits == 1 || bits == 2 || bits == 4 || bits == 6;
  if (bits == 0 || bits > kMax || !is_width) {
    return refused(" has elements of ", bits, " bits; supported are 1, 2, 4, 6 and whole bytes up to 248");
  }
  if (code > kMax) return refused(" has the type code ", code, "; a DLPack type code has 8 bits");
  return Ok();
}

Status CheckRank(const ShareLimits& limits, uint64_t rank, uint64_t index) {
  if (rank <= limits.rank_max) return Ok();
  return InvalidArgument("array ", index, " has rank ", rank, " (limits.rank_max ", limits.rank_max, ")")
      .Because("TOO_LARGE");
}

}  // namespace arraybridge

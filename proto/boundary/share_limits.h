// SPDX-License-Identifier: Apache-2.0
// ShareLimits are the broker's configured limits on a share. The broker refuses a share that exceeds one. A client
// receives the limits and refuses the same shares, with the same messages, before it copies a byte.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge {

struct ShareLimits {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  uint64_t frame_bytes_max = kNone;
  uint64_t name_bytes_max = kNone;
  uint64_t arrays_per_share_max = kNone;
  uint64_t rank_max = kNone;
  uint64_t spec_bytes_max = kNone;
  uint64_t structure_bytes_max = kNone;
  uint64_t metadata_bytes_max = kNone;
};

// The sizes of a share in a Publish request, in encoded bytes.
struct ShareSizes {
  uint64_t namespace_bytes = 0;
  uint64_t name_bytes = 0;
  uint64_t arrays = 0;
  uint64_t spec_bytes = 0;  // size of the ArraySpecs message
  uint64_t structure_bytes = 0;
  uint64_t metadata_bytes = 0;
};

inline constexpr uint64_t kFenceBytesMax = 64;  // an interprocess event

// INVALID_ARGUMENT (TOO_LARGE, TOO_MANY) names the value, the limit and the numbers.
Status CheckBytes(std::string_view what, uint64_t bytes, std::string_view limit, uint64_t most);
Status CheckCount(std::string_view what, uint64_t count, std::string_view limit, uint64_t most);
// INVALID_ARGUMENT (BAD_NAME) unless it is UTF-8. `what`: "a share's name", for example. The broker ends the connection
// of a client that sends another name, namespace or prefix, because the request is no message.
Status CheckText(std::string_view what, std::string_view text);
Status CheckShare(const ShareLimits& limits, const ShareSizes& share);
// Checks the element type of array `index` of a share. Refuses types that a DLDataType cannot express or that no
// library uses: a code or a width of more than 8 bits, a width that is neither whole bytes nor 1, 2, 4 or 6 bits, and
// more than one lane. INVALID_ARGUMENT (ELEMENT_TYPE). This is the only check: the broker refuses such a share, and a
// client neither reads nor sends one.
Status CheckElement(uint64_t code, uint64_t bits, uint64_t lanes, uint64_t index);
Status CheckRank(const ShareLimits& limits, uint64_t rank, uint64_t index);

}  // namespace arraybridge

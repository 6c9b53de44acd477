// ShareLimits are what a share may be, as the broker was configured. It refuses what goes beyond; a client, which is
// told these numbers, refuses the same in the same words before it copies a byte.
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

// What a Publish says of its share, in bytes of the message.
struct ShareSizes {
  uint64_t namespace_bytes = 0;
  uint64_t name_bytes = 0;
  uint64_t arrays = 0;
  uint64_t spec_bytes = 0;  // of the ArraySpecs message
  uint64_t structure_bytes = 0;
  uint64_t metadata_bytes = 0;
};

inline constexpr uint64_t kFenceBytesMax = 64;  // an interprocess event

// INVALID_ARGUMENT (TOO_LARGE, TOO_MANY) names what is beyond which limit, and the numbers.
Status CheckBytes(std::string_view what, uint64_t bytes, std::string_view limit, uint64_t most);
Status CheckCount(std::string_view what, uint64_t count, std::string_view limit, uint64_t most);
Status CheckShare(const ShareLimits& limits, const ShareSizes& share);
// `index`: of the array in its share. What no DLDataType can say is refused: a code or bits beyond 8 bits, bits that
// are neither whole bytes nor a known part of one, other lanes than 1. INVALID_ARGUMENT, ELEMENT_TYPE. The one place
// that decides: the broker refuses such a share, a client reads none and sends none.
Status CheckElement(uint64_t code, uint64_t bits, uint64_t lanes, uint64_t index);
Status CheckRank(const ShareLimits& limits, uint64_t rank, uint64_t index);

}  // namespace arraybridge

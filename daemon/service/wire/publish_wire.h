// SPDX-License-Identifier: Apache-2.0
// Reads a Publish request as views into its bytes. Publish is the most frequent request, and the descriptions of its
// arrays are passed on unchanged, so libprotobuf, which would copy everything, is not used.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge {

// The fields are views into the bytes of the request.
struct PublishAsked {
  std::string_view bytes{};  // the whole request
  std::string_view ns{};
  std::string_view name{};
  uint64_t arena = 0;
  uint64_t arena_generation = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string_view specs{};  // a v1.ArraySpecs
  uint64_t arrays = 0;       // number of arrays in `specs`
  bool replace = false;
  bool sealed = false;
  int32_t fence_kind = 0;
  std::string_view fence_event{};
  std::string_view structure{};
  std::string_view metadata{};
  uint64_t channel = 0;
  uint64_t timeout_ms = 0;
  uint64_t lifetime_ms = 0;
  std::string_view note{};
  uint64_t seen_notice = 0;
  // Of a forward; all 0: the range is the session's own.
  uint64_t source_lease = 0;
  uint64_t source_share = 0;
  uint64_t source_direct_channel = 0;
  uint64_t source_bit = 0;
};

// INVALID_ARGUMENT: the bytes are not a v1.PublishRequest. CheckPublish checks the individual specs.
Result<PublishAsked> ReadPublish(std::string_view bytes);
// The specs, structure and metadata of a v1.Share. INVALID_ARGUMENT as above.
Result<PublishAsked> ReadDescription(std::string_view bytes);

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// Reads an Acquire request as views into its bytes, because libprotobuf would copy every name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/broker/broker.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// The fields are views into the bytes of the request.
struct AcquireAsked {
  std::string_view bytes;  // the whole request
  std::string_view ns;
  std::vector<ShareKey> shares;
  uint64_t timeout_ms = 0;
  bool final_only = false;
  uint64_t fence_timeout_ms = 0;
  std::string_view note;
};

// INVALID_ARGUMENT: the bytes are not a v1.AcquireRequest. CheckShares checks the names.
Result<AcquireAsked> ReadAcquire(std::string_view bytes);

}  // namespace arraybridge

// What an Acquire asks for, as views into its bytes: libprotobuf would copy every name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/broker/broker.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Views into the bytes that were read.
struct AcquireAsked {
  std::string_view bytes;  // all of them
  std::string_view ns;
  std::vector<ShareKey> shares;
  uint64_t timeout_ms = 0;
  bool final_only = false;
  uint64_t fence_timeout_ms = 0;
  std::string_view note;
};

// INVALID_ARGUMENT: the bytes are no v1.AcquireRequest. The names are checked by CheckShares.
Result<AcquireAsked> ReadAcquire(std::string_view bytes);

}  // namespace arraybridge

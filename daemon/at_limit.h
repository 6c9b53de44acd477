// The refusal by a configured limit, which names the limit and its value.
#pragma once

#include <string>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge {

inline Status AtLimit(std::string_view reason, std::string_view limit, uint64_t value) {
  return ResourceExhausted("limit ", limit, " (", value, ") is reached")
      .Because(std::string(reason))
      .With("limit", std::string(limit))
      .With("value", std::to_string(value));
}

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// The refusal by a configured limit, which names the limit and its value.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The refusal with the limit in its details.
inline Status ByLimit(Status refusal, std::string_view reason, std::string_view limit, uint64_t value) {
  return std::move(refusal)
      .Because(std::string(reason))
      .With("limit", std::string(limit))
      .With("value", std::to_string(value));
}

// The limit in the details of a refusal; empty: none.
inline std::string_view LimitIn(const Status& refusal) {
  for (const auto& [key, value] : refusal.metadata()) {
    if (key == "limit") return value;
  }
  return {};
}

inline Status AtLimit(std::string_view reason, std::string_view limit, uint64_t value) {
  return ByLimit(ResourceExhausted("limit ", limit, " (", value, ") is reached"), reason, limit, value);
}

// A limit that all users share, and how much of it is in use.
struct SharedLimit {
  std::string_view reason;
  std::string_view name;
  uint64_t value;
  uint64_t used;
};

// Whether a user that has `own` of these may have one more. So a few users cannot take all of them: of the last eighth
// a user gets at most as much as it leaves, and the last 64th is for root and for the daemon's own user.
inline Status CheckSharedLimit(const SharedLimit& limit, uint32_t uid, uint64_t own) {
  if (limit.used >= limit.value) return AtLimit(limit.reason, limit.name, limit.value);
  if (uid == 0 || uid == ::geteuid()) return Ok();
  const uint64_t left = limit.value - limit.used;
  if (left > limit.value / 8) return Ok();
  const uint64_t kept = limit.value / 64;
  if (left > kept && own < left - kept) return Ok();
  return ByLimit(ResourceExhausted("limit ", limit.name, " (", limit.value, ") is almost reached: user ", uid, " has ",
                                   own, ", and what is left is for users with fewer"),
                 limit.reason, limit.name, limit.value);
}

}  // namespace arraybridge::daemon

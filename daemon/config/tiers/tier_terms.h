// SPDX-License-Identifier: Apache-2.0
// TierTerms are the operator's terms for shares whose bytes are in files: the table [tiers].
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

struct TierTerms {
  std::string directory;             // of the files; empty: no bytes leave the memory
  uint64_t disk_max = 64ull << 30;   // bytes of all files
  uint64_t disk_max_per_user = 0;    // bytes of the files of one user; 0 = disk_max
  uint32_t high = 0;                 // percent of host memory: more in use, and shares move to files; 0 = never
  uint32_t low = 0;                  // percent: until no more is in use; 0 = 5 less than high
  std::vector<std::string> durable;  // names of namespaces whose named shares have files that stay

  // INVALID_ARGUMENT: `low` is more than `high`. `where`: the beginning of the message.
  Status Check(std::string_view where) const;
  uint32_t until() const { return low == 0 ? high - std::min(high, 5u) : low; }
  uint64_t of_user() const { return disk_max_per_user == 0 ? disk_max : disk_max_per_user; }
};

}  // namespace arraybridge::daemon

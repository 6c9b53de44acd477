// SPDX-License-Identifier: Apache-2.0
// TierTerms are the operator's terms for shares whose bytes are in files: the table [tiers].
#pragma once

#include <cstdint>
#include <string>

namespace arraybridge::daemon {

struct TierTerms {
  std::string directory;            // of the files; empty: no bytes leave the memory
  uint64_t disk_max = 64ull << 30;  // bytes of all files
  uint64_t disk_max_per_user = 0;   // bytes of the files of one user; 0 = disk_max

  uint64_t of_user() const { return disk_max_per_user == 0 ? disk_max : disk_max_per_user; }
};

}  // namespace arraybridge::daemon

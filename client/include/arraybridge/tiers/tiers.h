// SPDX-License-Identifier: Apache-2.0
// TierCalls move the bytes of shares between the broker's memory and files of its directory, and list the files. A
// share keeps its name, its generation and its owner; an acquire of a share in a file waits until its bytes are in
// memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <arraybridge/broker.h>

#include "proto/boundary/result.h"

namespace arraybridge {

enum class TierAction : uint8_t { kList = 1, kMoveOut = 2, kMoveIn = 3, kKeep = 4, kVerify = 5, kPin = 6 };
enum class TierPin : uint8_t { kNone, kSoft, kHard };

// Of kPin: which shares leave memory first. The lowest priority, of -1000 to 1000, is the first.
struct TierRank {
  TierPin pin = TierPin::kNone;
  int32_t priority = 0;
};

struct TieredShare {
  std::string name;
  uint64_t generation = 0;
  uint64_t bytes = 0;
  bool in_memory = false;
  bool durable = false;
  bool lost = false;
};

struct TierAnswer {
  std::vector<TieredShare> shares;
  uint64_t disk_bytes = 0;
  uint64_t disk_bytes_max = 0;
  std::string off;  // why nothing is written any more; empty: files are written
};

class TierCalls {
 public:
  // `share`: its name, and its generation unless any will do; kList: without a name, all. FAILED_PRECONDITION:
  // SHARE_IN_USE, NOT_MOVABLE, PINNED, NO_TIER, NO_FILE. RESOURCE_EXHAUSTED: DISK_FULL; no memory. UNAVAILABLE:
  // TIER_OFF, DISK_FAILED. DATA_LOSS: the file is damaged. NOT_FOUND.
  static Result<TierAnswer> Ask(Broker& broker, TierAction action, const ShareRef& share,
                                std::chrono::milliseconds timeout, TierRank rank = {});
};

}  // namespace arraybridge

// SPDX-License-Identifier: Apache-2.0
// A benchmark of a broker on this host: how long its verbs take, and how fast bytes are copied in.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "client/ctl/commands.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

const std::vector<std::string>& BenchKinds();  // "allocate", "acquire", "copy"

struct BenchWishes {
  std::string what;      // empty: all kinds
  uint64_t count = 200;  // repetitions of each kind
};
// Prints one row for each kind and size: the median and the 99th percentile, in nanoseconds in CSV and JSON. The shares
// that it makes are withdrawn when it ends, also after an error.
Status Bench(const Options& options, const BenchWishes& wishes, std::ostream& out);

}  // namespace arraybridge::ctl

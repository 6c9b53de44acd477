// What a client of this broker may expect on this host: how long its verbs take, and how fast bytes go in.
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
  std::string what;      // empty: all of them
  uint64_t count = 200;  // of each
};
// One row each: the median and what 99 of 100 stay below, in nanoseconds in CSV and JSON. The shares it makes are gone
// when it ends, however it ends.
Status Bench(const Options& options, const BenchWishes& wishes, std::ostream& out);

}  // namespace arraybridge::ctl

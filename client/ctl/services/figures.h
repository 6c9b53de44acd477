// SPDX-License-Identifier: Apache-2.0
// Figures are what one server of a service publishes of its work, as "requests=20 failed=0 rate_milli=1500 p50_us=900
// p99_us=4000": numbers since its start, the rate of the last seconds in thousandths of a request, and the time from a
// call to its answer.
#pragma once

#include <cstdint>
#include <string_view>

namespace arraybridge::ctl {

struct Figures {
  uint64_t requests = 0;
  uint64_t failed = 0;
  uint64_t rate_milli = 0;
  uint64_t p50_us = 0;
  uint64_t p99_us = 0;
};

// Reads what another process wrote: what it does not know, and what is no number, is left out.
Figures ReadFigures(std::string_view text);

}  // namespace arraybridge::ctl

// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/runs/run.h"

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

Run RunOf(std::string_view text) { return text.empty() ? nullptr : std::make_shared<const std::string>(text); }

std::string OfRun(const Run& run) { return run == nullptr ? std::string() : Concat(" of run '", *run, "'"); }

bool IsTold(const Run& own, const Run& other) { return own == nullptr || (other != nullptr && *own == *other); }

}  // namespace arraybridge::daemon
